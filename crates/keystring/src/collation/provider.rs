//! The library's own data, with one of its bits as a client asks: whether accents compare from the
//! end of the text. The library takes that from the language alone, where only Canadian French has
//! it; MongoDB lets the client say.
//!
//! Always true: the bit is the one in which Canadian French differs from French.

use icu_collator::provider::{
    Baked, CollationDiacriticsV1, CollationJamoV1, CollationMetadata, CollationMetadataV1,
    CollationReorderingV1, CollationRootV1, CollationSpecialPrimariesV1, CollationTailoringV1,
};
use icu_normalizer::provider::{NormalizerNfdDataV1, NormalizerNfdTablesV1};
use icu_provider::prelude::{
    DataError, DataIdentifierBorrowed, DataPayload, DataProvider, DataRequest, DataResponse,
};
use std::cell::Cell;

pub(super) struct Provider {
    wanted: Option<bool>,
    /// The library asked for a kind of order that it does not have.
    lacks_type: Cell<bool>,
    backwards: Cell<bool>,
}

impl Provider {
    pub(super) fn new(wanted: Option<bool>) -> Self {
        Self { wanted, lacks_type: Cell::new(false), backwards: Cell::new(false) }
    }

    pub(super) fn lacks_type(&self) -> bool {
        self.lacks_type.get()
    }

    /// What was decided, by the client or the language.
    pub(super) fn is_backwards(&self) -> bool {
        self.backwards.get()
    }
}

macro_rules! pass_on {
    ($($data:path: $($marker:ty)*;)*) => {$($(
        impl DataProvider<$marker> for Provider {
            fn load(&self, request: DataRequest<'_>) -> Result<DataResponse<$marker>, DataError> {
                $data.load(request)
            }
        }
    )*)*};
}

pass_on! {
    Baked: CollationDiacriticsV1 CollationJamoV1 CollationReorderingV1 CollationRootV1
        CollationSpecialPrimariesV1 CollationTailoringV1;
    icu_normalizer::provider::Baked: NormalizerNfdDataV1 NormalizerNfdTablesV1;
}

fn load(request: DataRequest<'_>) -> Result<DataResponse<CollationMetadataV1>, DataError> {
    Baked.load(request)
}

/// The bits in which Canadian French differs from French.
fn backwards_bits() -> Result<u32, DataError> {
    let bits = |locale: icu_locale_core::Locale| -> Result<u32, DataError> {
        let locale = (&locale).into();
        let id = DataIdentifierBorrowed::for_locale(&locale);
        Ok(load(DataRequest { id, ..DataRequest::default() })?.payload.get().bits)
    };
    let canadian = bits(icu_locale_core::locale!("fr-CA"))?;
    Ok(canadian & !bits(icu_locale_core::locale!("fr"))?)
}

impl DataProvider<CollationMetadataV1> for Provider {
    fn load(
        &self,
        request: DataRequest<'_>,
    ) -> Result<DataResponse<CollationMetadataV1>, DataError> {
        let found = load(request);
        if found.is_err() && !request.id.marker_attributes.is_empty() {
            self.lacks_type.set(true);
        }
        let found = found?;
        let bit = backwards_bits()?;
        let own: CollationMetadata = *found.payload.get();
        let backwards = self.wanted.unwrap_or(own.bits & bit != 0);
        self.backwards.set(backwards);
        let mut changed = own;
        changed.bits = if backwards { own.bits | bit } else { own.bits & !bit };
        Ok(DataResponse { metadata: found.metadata, payload: DataPayload::from_owned(changed) })
    }
}
