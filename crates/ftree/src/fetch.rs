//! Hints to the processor: memory that will be looked at soon, and that it cannot foresee.
//!
//! Always true: a hint changes nothing but time.

/// Cache lines of 64 bytes, as everywhere this is built for.
pub(crate) const LINE_BYTES: usize = 64;

/// Asks for the cache line of an address, which may be any.
pub(crate) fn fetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which may name any address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _unused = place;
}
