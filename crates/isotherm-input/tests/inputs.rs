//! What may be an input, and what is read of it.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::error::Error;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_input::{Input, InputError, Problem};

fn fifo(directory: &Path) -> PathBuf {
    let path = directory.join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// The message of an error, with its cause and without the path.
fn message(path: &Path, error: InputError) -> String {
    let cause = error.source().unwrap().to_string();
    format!("{error}: {cause}").replace(path.to_str().unwrap(), "FILE")
}

#[test]
fn a_regular_file_is_read_up_to_the_limit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    std::fs::write(&path, "12345").unwrap();
    assert_eq!(Input::new(&path).limited_to(5).bytes().unwrap(), b"12345");
    let error = Input::new(&path).limited_to(4).bytes().unwrap_err();
    let text = "cannot read FILE (give another file): it has more than 4 bytes, which is the limit for such a file";
    assert_eq!(message(&path, error), text);
    // Files of /proc have no length.
    let endless = Path::new("/proc/self/maps");
    assert!(matches!(Input::new(endless).limited_to(10).bytes().unwrap_err().problem, Problem::TooLarge(10)));
}

#[test]
fn text_must_be_utf8() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    std::fs::write(&path, b"ab\xff").unwrap();
    let error = Input::new(&path).text().unwrap_err();
    let text = "cannot read FILE (give another file): it is not text in UTF-8: byte 2 is wrong";
    assert_eq!(message(&path, error), text);
}

#[test]
fn what_is_no_regular_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let pipe = fifo(directory.path());
    for (path, what) in [
        (pipe.as_path(), "a pipe and not a regular file"),
        (&socket, "a socket and not a regular file"),
        (Path::new("/dev/zero"), "a device and not a regular file"),
        (directory.path(), "a directory"),
    ] {
        let expected = format!("cannot read FILE (give a regular file): it is {what}");
        assert_eq!(message(path, Input::new(path).open().unwrap_err()), expected);
        assert_eq!(message(path, Input::new(path).bytes().unwrap_err()), expected);
    }
    let missing = directory.path().join("missing");
    let text = message(&missing, Input::new(&missing).open().unwrap_err());
    assert_eq!(text, "cannot read FILE (check the name): No such file or directory (os error 2)");
}

#[test]
fn a_pipe_is_read_where_that_is_wanted() {
    let directory = tempfile::tempdir().unwrap();
    let path = fifo(directory.path());
    let writer = path.clone();
    let writer = std::thread::spawn(move || {
        let mut pipe = std::fs::File::options().write(true).open(writer).unwrap();
        (0..100_000).for_each(|i| write!(pipe, "{}", i % 10).unwrap());
    });
    assert_eq!(Input::new(&path).or_pipe().bytes().unwrap().len(), 100_000);
    writer.join().unwrap();
    // It is still no file to read at any place.
    assert!(Input::new(&path).or_pipe().open().is_err());
}

#[test]
fn a_pipe_without_a_writer_is_silent() {
    let directory = tempfile::tempdir().unwrap();
    let path = fifo(directory.path());
    assert!(matches!(Input::new(&path).or_pipe().bytes().unwrap_err().problem, Problem::Silent(_)));
}
