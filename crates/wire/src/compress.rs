//! OP_COMPRESSED: another message inside, packed with snappy, zlib, zstd or nothing.
//!
//! After the header: `originalOpcode i32, uncompressedSize i32, compressorId u8, packed bytes`.
//! The packed bytes are the original message without its header; request and response ids
//! are those of the outer header.
//!
//! What is always true of what [`Codec::decompress`] returns: it is a whole frame with a header
//! of its own, exactly as long as was declared, and not OP_COMPRESSED again. Memory grows with
//! what really comes out of the packed bytes, never with what the frame claims.

use crate::error::{Error, Result};
use crate::header::{HEADER_SIZE, Header, MAX_MESSAGE_SIZE, opcode, seal};
use crate::reader::Reader;
use std::io::Read;

/// A message that fills the limit, and what a command wraps around it.
const MAX_UNCOMPRESSED: usize = MAX_MESSAGE_SIZE + 16 * 1024;

/// A snappy copy element of three bytes makes at most 64: no honest frame claims more.
const SNAPPY_MAX_RATIO: usize = 22;

/// The widest window that zstd's own levels of speed use, 8 MiB: what a frame may make the unpacker keep
/// beside the message.
const ZSTD_WINDOW_LOG: u32 = 23;

/// MongoDB's defaults; both ends of a connection may choose any.
const ZLIB_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

/// How a message is packed. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compressor {
    /// Not packed at all.
    Noop,
    /// snappy.
    Snappy,
    /// zlib.
    Zlib,
    /// zstd.
    Zstd,
}

impl Compressor {
    /// From the wire's number.
    pub fn from_id(id: u8) -> Option<Self> {
        Some(match id {
            0 => Self::Noop,
            1 => Self::Snappy,
            2 => Self::Zlib,
            3 => Self::Zstd,
            _ => return None,
        })
    }

    /// The wire's number.
    pub fn id(self) -> u8 {
        match self {
            Self::Noop => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// The name in the `compression` array of `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// Packs and unpacks. Holds the packers' working memory, made at first use, so a thread that
/// serves compressed connections keeps one and one that does not pays nothing.
#[derive(Default)]
pub struct Codec {
    snappy: Option<Box<snap::raw::Encoder>>,
    zstd: Option<Box<zstd::bulk::Compressor<'static>>>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").finish_non_exhaustive()
    }
}

impl Codec {
    /// A codec without working memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Unpacks an OP_COMPRESSED frame into a whole plain frame, and says how it was packed, which
    /// is how the reply is to be packed.
    ///
    /// # Errors
    /// Always [`Error::Close`].
    pub fn decompress(&mut self, frame: &[u8]) -> Result<(Vec<u8>, Compressor)> {
        let header = Header::of_frame(frame)?;
        if header.opcode != opcode::COMPRESSED {
            return Err(Error::close("not an OP_COMPRESSED frame"));
        }
        let mut reader = Reader::new(&frame[HEADER_SIZE..]);
        let (original, declared, compressor) =
            read_prefix(&mut reader).map_err(|error| Error::close(error.message()))?;
        if original == opcode::COMPRESSED {
            return Err(Error::close("OP_COMPRESSED inside OP_COMPRESSED"));
        }
        let size = usize::try_from(declared)
            .ok()
            .filter(|size| *size <= MAX_UNCOMPRESSED - HEADER_SIZE)
            .ok_or_else(|| Error::close(format!("uncompressed size {declared} is refused")))?;
        let compressor = Compressor::from_id(compressor)
            .ok_or_else(|| Error::close(format!("unknown compressor {compressor}")))?;
        let mut out = Vec::new();
        Header::append(&mut out, header.request_id, header.response_to, original);
        unpack(compressor, reader.rest(), size, &mut out)
            .map_err(|error| Error::close(format!("{} data: {error}", compressor.name())))?;
        if out.len() != HEADER_SIZE + size {
            return Err(Error::close("compressed message is not as long as it says"));
        }
        if out.len() > MAX_MESSAGE_SIZE {
            return Err(Error::close("uncompressed message is too long"));
        }
        seal(&mut out, 0);
        Ok((out, compressor))
    }

    /// Appends to `out` the plain frame `frame` as an OP_COMPRESSED one.
    ///
    /// # Errors
    /// [`Error::Close`] if `frame` is no whole frame, or the packer fails.
    pub fn compress(
        &mut self,
        frame: &[u8],
        compressor: Compressor,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let header = Header::of_frame(frame)?;
        let plain = &frame[HEADER_SIZE..];
        let start = Header::append(out, header.request_id, header.response_to, opcode::COMPRESSED);
        out.extend_from_slice(&header.opcode.to_le_bytes());
        out.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        out.push(compressor.id());
        if let Err(error) = self.pack(compressor, plain, out) {
            out.truncate(start);
            return Err(Error::close(format!("{}: {error}", compressor.name())));
        }
        seal(out, start);
        Ok(())
    }

    fn pack(
        &mut self,
        compressor: Compressor,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> std::io::Result<()> {
        match compressor {
            Compressor::Noop => out.extend_from_slice(plain),
            Compressor::Snappy => {
                let encoder =
                    self.snappy.get_or_insert_with(|| Box::new(snap::raw::Encoder::new()));
                let start = out.len();
                out.resize(start + snap::raw::max_compress_len(plain.len()), 0);
                let written = encoder.compress(plain, &mut out[start..])?;
                out.truncate(start + written);
            }
            Compressor::Zlib => {
                let level = flate2::Compression::new(ZLIB_LEVEL);
                flate2::read::ZlibEncoder::new(plain, level).read_to_end(out)?;
            }
            Compressor::Zstd => {
                let encoder = match &mut self.zstd {
                    Some(encoder) => encoder,
                    empty => empty.insert(Box::new(zstd::bulk::Compressor::new(ZSTD_LEVEL)?)),
                };
                out.extend_from_slice(&encoder.compress(plain)?);
            }
        }
        Ok(())
    }
}

/// How an OP_COMPRESSED frame says it is packed.
///
/// # Errors
/// Always [`Error::Close`].
pub fn peek_compressor(frame: &[u8]) -> Result<Compressor> {
    let id = frame.get(HEADER_SIZE + 8).copied();
    id.and_then(Compressor::from_id).ok_or_else(|| match id {
        Some(id) => Error::close(format!("unknown compressor {id}")),
        None => Error::close("OP_COMPRESSED shorter than its head"),
    })
}

fn read_prefix(reader: &mut Reader<'_>) -> errors::Result<(i32, i32, u8)> {
    Ok((reader.i32()?, reader.i32()?, reader.u8()?))
}

/// Appends what `packed` unpacks to; at most one byte more than `size`, which tells a lie.
fn unpack(
    compressor: Compressor,
    packed: &[u8],
    size: usize,
    out: &mut Vec<u8>,
) -> std::io::Result<()> {
    let limit = size as u64 + 1;
    match compressor {
        Compressor::Noop => out.extend_from_slice(packed),
        Compressor::Snappy => {
            let claimed = snap::raw::decompress_len(packed)?;
            if claimed != size || claimed > packed.len().saturating_mul(SNAPPY_MAX_RATIO) {
                return Err(std::io::Error::other("claims a size it cannot have"));
            }
            let start = out.len();
            out.resize(start + size, 0);
            snap::raw::Decoder::new().decompress(packed, &mut out[start..])?;
        }
        Compressor::Zlib => {
            flate2::read::ZlibDecoder::new(packed).take(limit).read_to_end(out)?;
        }
        Compressor::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            decoder.take(limit).read_to_end(out)?;
        }
    }
    Ok(())
}
