//! What is no recording, or none for this version, gets an error that says which, in a line.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, DictionaryArray, RecordBatch, UInt64Array, types::Int32Type};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::Schema;
use isotherm_record::{Format, Recording, convert};

use crate::common;

/// The message with which opening `path` fails, with `path` left out.
fn refusal(path: &Path) -> String {
    let message = isotherm_core::chain(&Recording::open(path).unwrap_err());
    assert!(message.contains(path.to_str().unwrap()), "{message}");
    assert!(!message.contains('\n'), "{message}");
    message.replace(path.to_str().unwrap(), "FILE")
}

fn refusal_of(bytes: &[u8]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    std::fs::write(&path, bytes).unwrap();
    refusal(&path)
}

fn foreign(reason: &str) -> String {
    format!("FILE is not a recording of isotherm: {reason}; give a file made by `isotherm record`")
}

/// A batch of others, with this metadata of its schema.
fn batch_of_others(metadata: &[(&str, &str)]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(UInt64Array::from(vec![1, 2, 3]));
    let words: ArrayRef = Arc::new(["a", "b", "a"].into_iter().collect::<DictionaryArray<Int32Type>>());
    let batch = RecordBatch::try_from_iter([("n", numbers), ("w", words)]).unwrap();
    let metadata: HashMap<String, String> = metadata.iter().map(|&(k, v)| (k.into(), v.into())).collect();
    let schema = Schema::clone(&batch.schema()).with_metadata(metadata);
    batch.with_schema(Arc::new(schema)).unwrap()
}

fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn nothing_there() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        refusal(&directory.path().join("a.rec")),
        "cannot open the recording FILE (check the name, or record first with `isotherm record`): No such file or \
         directory (os error 2)"
    );
}

#[test]
fn a_directory() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(refusal(directory.path()), "cannot open the recording FILE (give a file): is a directory");
}

#[test]
fn a_device_and_a_pipe() {
    let expected = "cannot read the recording FILE: it is not a regular file; give the path of one";
    assert_eq!(refusal("/dev/zero".as_ref()), expected);
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(refusal(&pipe), expected);
}

#[test]
fn an_empty_file() {
    assert_eq!(refusal_of(b""), "the recording FILE is empty: nothing was written to it; record again");
}

#[test]
fn files_of_other_programs() {
    assert_eq!(refusal_of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), foreign("it is a PNG picture"));
    assert_eq!(refusal_of(b"Dear diary,\nit was warm.\n"), foreign("it looks like text"));
    assert_eq!(refusal_of(b"x"), foreign("it looks like text"));
    let damo = "if damo wrote it, `isotherm convert FILE NAME.rec` makes a recording of it";
    assert_eq!(refusal_of(b"[\n{"), foreign(&format!("it looks like JSON; {damo}")));
    assert_eq!(refusal_of(b"\x78\x9c\xed\x9d"), foreign(&format!("it is compressed with zlib; {damo}")));
    assert_eq!(refusal_of(b"PAR1\x15\x04"), foreign("it is a Parquet file"));
    assert_eq!(refusal_of(b"PERFILE2h\0\0\0"), foreign("it is a recording of perf"));
    assert_eq!(refusal_of(&[0xfe; 100]), foreign("it is not an Arrow stream"));
    assert_eq!(refusal_of(&[0xff; 100]), foreign("it is not an Arrow stream"));
    assert_eq!(refusal_of(b"\xff\xff\xff\xff\x08\0\0\0garbage!"), foreign("it is not an Arrow stream"));
    assert_eq!(refusal_of(b"\xff\xff\xff\xff\0\0\0\0"), foreign("it is not an Arrow stream"));
}

#[test]
fn a_recording_that_was_converted() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("a.rec");
    common::record(&recording, 5);
    for (format, reason) in [
        (Format::Parquet, "it is a Parquet file"),
        (Format::Csv, "it looks like a CSV that isotherm converted"),
        (Format::Json, "it looks like JSON"),
    ] {
        let output = directory.path().join("out");
        convert(&Recording::open(&recording).unwrap(), &output, format).unwrap();
        assert_eq!(refusal(&output), foreign(reason));
    }
}

#[test]
fn arrow_of_others() {
    let batch = batch_of_others(&[("pandas", "{}")]);
    assert_eq!(refusal_of(&stream(std::slice::from_ref(&batch))), foreign("it is an Arrow stream, but not isotherm's"));

    let mut file = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    file.write(&batch).unwrap();
    assert_eq!(refusal_of(&file.into_inner().unwrap()), foreign("it is an Arrow file, not an Arrow stream"));
}

#[test]
fn another_format() {
    let header = r#"{"isotherm_version":"9.1.0","more":[1]}"#;
    let refusal =
        |format| refusal_of(&stream(&[batch_of_others(&[("isotherm.format", format), ("isotherm.header", header)])]));
    let made = "the recording FILE was made by isotherm 9.1.0 in format";
    assert_eq!(refusal("5"), format!("{made} 5; this isotherm reads format 4 only: upgrade it"));
    assert_eq!(
        refusal("2"),
        format!(
            "{made} 2; this isotherm reads format 4 only: record again, or use the isotherm that made it (no release \
             has written this format)"
        )
    );
}

#[test]
fn the_version_that_made_a_recording_is_foreign_text() {
    let header = r#"{"isotherm_version":"9\u001b[31m\u202e\u009b\n"}"#;
    let bytes = stream(&[batch_of_others(&[("isotherm.format", "5"), ("isotherm.header", header)])]);
    let message = refusal_of(&bytes);
    assert!(message.contains(r"made by isotherm 9\x1b[31m\u{202e}\x9b\n in format 5"), "{message}");
}

#[test]
fn a_recording_that_another_program_has_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.rec");
    common::record(&path, 5);
    let reader = StreamReader::try_new(std::fs::File::open(&path).unwrap(), None).unwrap();
    let batches: Vec<_> = reader.map(Result::unwrap).collect();
    let message = refusal_of(&stream(&batches));
    assert!(message.contains("another program has rewritten the file"), "{message}");
}

#[test]
fn columns_that_do_not_belong_to_the_format() {
    let bytes = stream(&[batch_of_others(&[("isotherm.format", "4"), ("isotherm.header", "{}")])]);
    let message = refusal_of(&bytes);
    assert!(message.starts_with("the recording FILE is damaged at byte 0: "), "{message}");
}
