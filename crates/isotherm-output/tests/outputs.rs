//! What holds for every output. Devices, pipes and sockets are made in a temporary directory.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use isotherm_output::{Output, OutputError, Refusal};
use isotherm_testing::or_skip;
use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

/// Another user than root and the caller.
const NOBODY: u32 = 65534;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn output(&self, name: &str) -> Output {
        Output::new(&self.path(name))
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names of all files, sorted.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Makes a device in this directory. An error is the reason to skip the test.
    fn device(&self, name: &str, kind: FileType, (major, minor): (u32, u32)) -> Result<PathBuf, String> {
        let made = mknodat(CWD, self.path(name), kind, Mode::RUSR | Mode::WUSR, makedev(major, minor));
        made.map(|()| self.path(name)).map_err(|error| format!("a device cannot be made: {error}"))
    }
}

/// Gives a file to another user. An error is the reason to skip the test.
fn give_away(path: &Path) -> Result<(), String> {
    lchown(path, Some(NOBODY), Some(NOBODY)).map_err(|error| format!("a file cannot be given away: {error}"))
}

fn write(output: Output, text: &str) -> Result<(), OutputError> {
    output.create()?.write_whole(|writer| writer.write_all(text.as_bytes()))
}

/// Asserts that nothing can be written, and that the message contains these words.
#[track_caller]
fn refused(output: Output, words: &[&str]) {
    let error = output.create().unwrap_err();
    let text = format!("{error}: {}", error.refusal);
    assert!(words.iter().all(|word| text.contains(word)), "{words:?} are not in {text}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_file_appears_whole_and_one_that_is_given_up_leaves_what_was_there() {
    let place = Place::new();
    place.put("x", "before");
    let mut file = place.output("x").create().unwrap();
    file.write_all(b"half").unwrap();
    assert_eq!(place.text("x"), "before");
    drop(file);
    assert_eq!((place.text("x"), place.names()), ("before".into(), vec!["x".into()]));

    let mut file = place.output("x").create().unwrap();
    file.write_all(b"after").unwrap();
    file.publish().unwrap();
    file.write_all(b"wards").unwrap();
    assert_eq!(place.text("x"), "afterwards", "it grows after it has its name");
    file.finish().unwrap();
    assert_eq!((place.text("x"), place.names()), ("afterwards".into(), vec!["x".into()]));

    let failed = place.output("x").create().unwrap().write_whole(|_| Err(std::io::ErrorKind::StorageFull.into()));
    assert!(failed.unwrap_err().to_string().contains("free some space"));
    assert_eq!((place.text("x"), place.names()), ("afterwards".into(), vec!["x".into()]));
}

#[test]
fn only_the_owner_can_read_a_file_whoever_had_it_before() {
    let place = Place::new();
    let path = place.put("x", "before");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let reader = File::open(&path).unwrap();
    write(place.output("x"), "secret").unwrap();
    assert_eq!(mode(&path), 0o600);
    let mut seen = String::new();
    { reader }.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "before", "who had the old file open does not see the new one");

    write(place.output("x").readable_by_all(), "public").unwrap();
    assert_eq!(mode(&path), 0o644);
    or_skip!(give_away(&path));
    write(place.output("x"), "secret").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), mode(&path)), (0, 0, 0o600));
}

#[test]
fn what_lies_behind_a_link_is_replaced_and_the_link_stays() {
    let place = Place::new();
    fs::create_dir(place.path("there")).unwrap();
    symlink("there/x", place.path("link")).unwrap();
    for text in ["first", "second"] {
        write(place.output("link"), text).unwrap();
        assert_eq!(place.text("there/x"), text);
    }
    assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
    assert_eq!(place.names(), ["link", "there"]);
}

#[test]
fn nothing_is_written_through_a_link_of_another_user() {
    let place = Place::new();
    fs::create_dir(place.path("there")).unwrap();
    place.put("there/x", "before");
    symlink("there/x", place.path("file")).unwrap();
    symlink("there", place.path("directory")).unwrap();
    symlink("file", place.path("own")).unwrap();
    or_skip!(give_away(&place.path("file")));
    or_skip!(give_away(&place.path("directory")));
    for name in ["file", "directory/x", "directory/new", "own"] {
        refused(place.output(name), &[name, "symbolic link of user 65534", "name the file itself"]);
        assert!(place.output(name).append().is_err(), "{name}");
    }
    assert_eq!(place.text("there/x"), "before");
    assert!(!place.path("there/new").exists());
}

#[test]
fn pipes_are_written_to_and_not_replaced() {
    let place = Place::new();
    mkfifoat(CWD, place.path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let path = place.path("pipe");
    let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
    let locked = place.output("pipe").keeping_previous().lock().unwrap();
    for text in ["one ", "two"] {
        let file = locked.create().unwrap();
        assert!(file.is_stream());
        file.write_whole(|writer| writer.write_all(text.as_bytes())).unwrap();
    }
    drop(locked);
    assert_eq!(reader.join().unwrap(), "one two");
    assert!(fs::symlink_metadata(place.path("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(place.names(), ["pipe"]);

    or_skip!(give_away(&place.path("pipe")));
    refused(place.output("pipe"), &["a pipe of user 65534"]);
}

#[test]
fn character_devices_are_written_to_and_not_replaced() {
    let place = Place::new();
    let null = or_skip!(place.device("null", FileType::CharacterDevice, (1, 3)));
    let full = or_skip!(place.device("full", FileType::CharacterDevice, (1, 7)));
    write(place.output("null").keeping_previous(), "gone").unwrap();
    let error = write(place.output("full"), "too much").unwrap_err();
    assert!(matches!(&error.refusal, Refusal::System(e) if e.kind() == std::io::ErrorKind::StorageFull), "{error}");
    for path in [null, full] {
        assert!(fs::symlink_metadata(path).unwrap().file_type().is_char_device());
    }
    assert_eq!(place.names(), ["full", "null"]);
}

#[test]
fn block_devices_sockets_and_directories_are_refused() {
    let place = Place::new();
    fs::create_dir(place.path("directory")).unwrap();
    refused(place.output("directory"), &["it is a directory", "name another file"]);
    refused(place.output("new/"), &["No such file"]);
    refused(place.output("missing/x"), &["create its directory first"]);
    let _socket = std::os::unix::net::UnixListener::bind(place.path("socket")).unwrap();
    refused(place.output("socket"), &["it is a socket"]);
    // No driver has this number, because those of block devices are below 512.
    or_skip!(place.device("disk", FileType::BlockDevice, (4095, 0)));
    refused(place.output("disk"), &["it is a block device"]);
}

#[test]
fn an_open_file_descriptor_is_written_to_and_what_it_holds_stays() {
    let place = Place::new();
    let file = File::create(place.path("x")).unwrap();
    (&file).write_all(b"before, ").unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let output = Output::new(Path::new(&path));
    refused(output.clone().apart_from([place.path("x")]), &["an input of the same command"]);
    write(output, "after").unwrap();
    assert_eq!((place.text("x"), place.names()), ("before, after".into(), vec!["x".into()]));
}

#[test]
fn an_output_is_no_input_by_whatever_name() {
    let place = Place::new();
    let input = place.put("input", "read me");
    symlink("input", place.path("link")).unwrap();
    fs::hard_link(&input, place.path("hard")).unwrap();
    for name in ["input", "link", "hard"] {
        let output = || place.output(name).apart_from([place.path("missing"), input.clone()]);
        refused(output(), &[name, "an input of the same command"]);
        assert!(output().append().is_err());
    }
    // The link is an input by the file that it leads to.
    refused(place.output("input").apart_from([place.path("link")]), &["an input"]);
    refused(place.output("hard").apart_from([place.path("link")]), &["an input"]);
    write(place.output("other").apart_from([input]), "written").unwrap();
    assert_eq!(place.text("input"), "read me");
}

#[test]
fn the_previous_file_is_kept_if_that_is_asked_for() {
    let place = Place::new();
    let keep = |text: &str| write(place.output("x").keeping_previous(), text).unwrap();
    place.put("x", "");
    keep("first");
    assert_eq!(place.names(), ["x"], "an empty file is not kept");
    fs::set_permissions(place.path("x"), fs::Permissions::from_mode(0o640)).unwrap();
    keep("second");
    assert_eq!(
        (place.text("x"), place.text("x.old"), mode(&place.path("x.old"))),
        ("second".into(), "first".into(), 0o640)
    );
    keep("third");
    assert_eq!((place.text("x"), place.text("x.old")), ("third".into(), "second".into()));
    assert_eq!(place.names(), ["x", "x.old"]);

    // What is not published changes nothing.
    drop(place.output("x").keeping_previous().create().unwrap());
    assert_eq!((place.text("x"), place.text("x.old")), ("third".into(), "second".into()));

    refused(place.output("x").keeping_previous().apart_from([place.path("x.old")]), &["x.old", "an input"]);
    fs::remove_file(place.path("x.old")).unwrap();
    fs::create_dir(place.path("x.old")).unwrap();
    refused(place.output("x").keeping_previous(), &["x.old", "a directory"]);
    assert_eq!(place.text("x"), "third");
}

#[test]
fn the_previous_file_of_another_user_is_kept_and_stays_theirs() {
    let place = Place::new();
    let path = place.put("x", "theirs");
    or_skip!(chown(&path, Some(NOBODY), None).map_err(|error| format!("a file cannot be given away: {error}")));
    write(place.output("x").keeping_previous(), "ours").unwrap();
    assert_eq!((fs::metadata(&path).unwrap().uid(), fs::metadata(place.path("x.old")).unwrap().uid()), (0, NOBODY));
    assert_eq!((place.text("x"), place.text("x.old")), ("ours".into(), "theirs".into()));
}

#[test]
fn an_output_has_one_writer_at_a_time() {
    let place = Place::new();
    let locked = place.output("x").lock().unwrap();
    refused(place.output("x"), &["this command writes it already", "wait for its end"]);
    symlink("x", place.path("link")).unwrap();
    refused(place.output("link"), &["this command writes it already"]);
    for text in ["one", "two"] {
        locked.create().unwrap().write_whole(|writer| writer.write_all(text.as_bytes())).unwrap();
        assert_eq!(place.text("x"), text);
        refused(place.output("x"), &["this command writes it already"]);
    }
    // The file that a recording would be kept as is another's output.
    let old = place.output("y.old").create().unwrap();
    place.put("y.old", "there");
    refused(place.output("y").keeping_previous(), &["this command writes it already"]);
    drop((locked, old));
    write(place.output("x"), "three").unwrap();
    assert_eq!(place.names(), ["link", "x", "y.old"]);
}

#[test]
fn the_next_writer_removes_what_a_killed_one_left() {
    let place = Place::new();
    place.put(".x.isotherm-lock", "4711\n");
    place.put(".x.isotherm-part", "half");
    let locked = place.output("x").lock().unwrap();
    assert!(!place.path(".x.isotherm-part").exists());
    drop(locked);
    assert_eq!(place.names(), [""; 0]);

    // What another user put there is not written to.
    let theirs = place.put("theirs", "theirs");
    symlink(&theirs, place.path(".x.isotherm-part")).unwrap();
    fs::hard_link(&theirs, place.path(".x.isotherm-lock")).unwrap();
    write(place.output("x"), "ours").unwrap();
    assert_eq!((place.text("theirs"), place.text("x")), ("theirs".into(), "ours".into()));
    assert_eq!(place.names(), ["theirs", "x"]);
}

#[test]
fn a_log_is_added_to_unless_it_belongs_to_another_user() {
    let place = Place::new();
    for line in ["one\n", "two\n"] {
        place.output("log").append().unwrap().write_all(line.as_bytes()).unwrap();
    }
    assert_eq!((place.text("log"), mode(&place.path("log"))), ("one\ntwo\n".into(), 0o600));
    or_skip!(give_away(&place.path("log")));
    let error = place.output("log").append().unwrap_err();
    assert!(matches!(error.refusal, Refusal::ForeignFile(NOBODY)), "{error}");
}
