//! Batches as bytes: Arrow's encoding, in this format's framing.

use arrow_array::RecordBatch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_ipc::{CompressionType, MetadataVersion};
use arrow_schema::{ArrowError, Schema};

use crate::message::{Segment, frame};

/// Buffers begin at multiples of this many bytes. It is the least that Arrow allows, so that small batches have little
/// padding.
const ALIGNMENT: usize = 8;

/// Zstandard makes regions half as large as LZ4 does, in half of the CPU time (`examples/cost.rs`).
const COMPRESSION: CompressionType = CompressionType::ZSTD;
/// Its level: a sixth smaller than at Arrow's level (3), in twice the CPU time. A segment is compressed once.
const LEVEL: i32 = 7;

/// Batches of fewer bytes are small.
const SMALL: usize = 256 << 10;

/// Encodes one stream.
pub(crate) struct Encoder {
    plain: IpcWriteOptions,
    compressed: IpcWriteOptions,
    dictionaries: DictionaryTracker,
}

impl Encoder {
    /// An encoder at the start of a stream.
    pub(crate) fn new() -> Result<Self, ArrowError> {
        let plain = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
        let compressed = plain.clone().try_with_compression(Some(COMPRESSION))?;
        let compressed = compressed.try_with_compression_level(Some(LEVEL))?;
        Ok(Self { plain, compressed, dictionaries: DictionaryTracker::new(true) })
    }

    /// The message that begins a stream.
    pub(crate) fn schema(&mut self, schema: &Schema) -> Result<Vec<u8>, ArrowError> {
        let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            schema,
            &mut self.dictionaries,
            &self.plain,
        );
        frame(&encoded.ipc_message, &encoded.arrow_data, Segment::default()).ok_or_else(too_large)
    }

    /// The message of one batch of about so many bytes. It is compressed if it is a whole segment, or not small: to
    /// compress the many columns of a small batch takes a fifth of the time to write it, and one of a whole segment
    /// takes its place.
    pub(crate) fn batch(&mut self, batch: &RecordBatch, segment: Segment, bytes: usize) -> Result<Vec<u8>, ArrowError> {
        let options = if segment.is_whole || bytes >= SMALL { &self.compressed } else { &self.plain };
        // The tables of Zstandard take 2 MiB, and a segment is compressed once in a while.
        let mut context = IpcWriteContext::default();
        // No column is a dictionary, and so there are no dictionaries to write.
        let (_, encoded) = IpcDataGenerator::default().encode(batch, &mut self.dictionaries, options, &mut context)?;
        frame(&encoded.ipc_message, &encoded.arrow_data, segment).ok_or_else(too_large)
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

fn too_large() -> ArrowError {
    ArrowError::IpcError("it is too large for one message".to_owned())
}
