//! `isotherm fleet` on an object store: a real server process that speaks S3.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use isotherm_testing::installed_or_skip;
use serde_json::{Value, json};

use crate::common::{Kept, Place, Ran};
use crate::made::{MADE, MIB, Made, recorded};

/// The server.
struct Server {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    port: u16,
    _process: Kept,
}

impl Server {
    /// Starts it. An error is the reason to skip the test.
    fn start() -> Result<Self, String> {
        let python = std::env::var("ISOTHERM_PYTHON").unwrap_or_else(|_| "python3".into());
        let installed = Command::new(&python).args(["-c", "import moto.server, pyarrow"]).output();
        if !installed.as_ref().is_ok_and(|output| output.status.success()) {
            return Err(format!("{python} has no moto, or no pyarrow"));
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/s3.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut server = Self { input, output: BufReader::new(output), port: 0, _process: Kept(process) };
        server.port = server.line().as_u64().unwrap().try_into().unwrap();
        Ok(server)
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("the server has ended: {error}: {line:?}"))
    }

    fn tell(&mut self, command: &str) -> Value {
        writeln!(self.input, "{command}").unwrap();
        self.line()
    }

    /// The objects that were written since the last call.
    fn puts(&mut self) -> Vec<String> {
        let log = self.tell("log");
        let lines = log.as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned());
        lines.filter(|line| line.starts_with("PUT ")).collect()
    }

    fn isotherm(&self, place: &Place, arguments: &[&str]) -> Command {
        let mut command = place.isotherm(arguments);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("AWS_")) {
            command.env_remove(name);
        }
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1");
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command
    }

    fn run(&self, place: &Place, arguments: &[&str]) -> Ran {
        Ran::new(self.isotherm(place, arguments).output().unwrap())
    }
}

/// A place with a history of one group: an hour, and another one with `hours` of 2.
fn history(place: &Place, hours: u64) {
    for hour in 0..hours {
        let path = place.path("history/all").join(format!("seconds-{:013}.rec", hour * 3_600_000));
        recorded(&path, Made { seconds: (hour * 3600, (hour + 1) * 3600), ..MADE });
    }
}

/// What pyarrow finds if each quarter of so many hours is there once.
fn sums(files: u64, rows: &Value, hours: u64) -> Value {
    json!({ "files": files, "rows": rows, "present": hours * 60 * (64 + 32 + 16 - 8) * MIB })
}

const WRITE: [&str; 5] = ["fleet", "write", "--to", "s3://fleet/all", "history"];
const COMPACT: [&str; 3] = ["fleet", "compact", "s3://fleet/all"];

#[test]
fn a_dataset_on_an_object_store_has_each_row_once_whatever_fails() {
    let mut server = installed_or_skip!(Server::start());
    let place = Place::new();
    history(&place, 1);
    let wrote = server.run(&place, &WRITE);
    assert!(wrote.status == 0 && wrote.out.contains(" of 4 quarters of an hour in s3://fleet/all\n"), "{wrote:?}");
    let puts = server.puts();
    assert_eq!(puts.len(), 4, "{puts:?}");
    assert_eq!(puts[0], "PUT /fleet/all/date=2024-10-04/host=a1/quarter-00.parquet 200");
    let wrote = server.run(&place, &WRITE);
    assert_eq!((wrote.status, server.puts()), (0, Vec::new()), "{wrote:?}");
    assert!(wrote.out.contains("4 quarters of an hour: there already"), "{wrote:?}");

    // The host was cut off, and the bucket fails halfway: after the list and two objects.
    history(&place, 2);
    server.tell("fail 3 500");
    let wrote = server.run(&place, &WRITE);
    let object = "isotherm: s3://fleet/all/date=2024-10-04/host=a1/quarter-06.parquet cannot be written: ";
    assert!(wrote.status == 1 && wrote.err.starts_with(object) && wrote.err.contains("500"), "{wrote:?}");
    server.tell("fail never -");
    let wrote = server.run(&place, &WRITE);
    assert!(wrote.status == 0 && wrote.out.contains("6 quarters of an hour: there already"), "{wrote:?}");
    let puts = server.puts();
    assert!(puts.len() == 4 && puts.iter().all(|put| put.ends_with(" 200")), "{puts:?}");
    let whole = server.tell("sums all");
    let local = place.run(&["fleet", "write", "--to", "local", "history"]);
    let rows = Value::from(local.out.split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap());
    assert_eq!(whole, sums(8, &rows, 2), "{local:?}");

    // Connections are closed while it compacts: when it reads, when it has removed the parts, and at the last step.
    for requests in [4, 26, 9] {
        server.tell(&format!("fail {requests} close"));
        let compacted = server.run(&place, &COMPACT);
        server.tell("fail never -");
        assert!(compacted.status == 1 && compacted.err.contains("s3://fleet/all"), "{requests}: {compacted:?}");
        // While the parts are removed and the day has no name yet, its rows are missing, and never there twice.
        let (now, is_between) = (server.tell("sums all"), requests == 26);
        assert_eq!(now["present"], if is_between { Value::Null } else { whole["present"].clone() }, "{requests}");
        let wrote = server.run(&place, &WRITE);
        assert!(wrote.status == 0 && wrote.out.contains("8 quarters of an hour: there already"), "{wrote:?}");
        let busy = server.run(&place, &COMPACT);
        assert!(
            busy.status == 1 && busy.err.contains("is being compacted: s3://fleet/all/.compaction was"),
            "{busy:?}"
        );
        server.tell("age all/.compaction 4000");
    }
    let compacted = server.run(&place, &COMPACT);
    assert_eq!(compacted.status, 0, "{compacted:?}");
    assert_eq!(server.tell("sums all"), sums(1, &rows, 2));
    let checked = server.run(&place, &["fleet", "check", "s3://fleet/all/"]);
    assert_eq!(checked.out, format!("1 file, 1 host, 1 day, {rows} rows: nothing is wrong\n"), "{checked:?}");
    assert_eq!(server.run(&place, &COMPACT).out, "0 days of hosts, made of 0 files\n");
    let wrote = server.run(&place, &WRITE);
    assert!(wrote.out.contains("8 quarters of an hour: there already"), "{wrote:?}");
}

/// `./dev test --all` builds the program with queries.
#[cfg(feature = "fleet-query")]
#[test]
fn a_dataset_on_an_object_store_is_queried_there() {
    let server = installed_or_skip!(Server::start());
    let place = Place::new();
    history(&place, 1);
    assert_eq!(server.run(&place, &WRITE).status, 0);
    assert_eq!(place.run(&["fleet", "write", "--to", "local", "history"]).status, 0);
    let sum = "SELECT SUM(present_bytes) AS present, COUNT(DISTINCT host) AS hosts FROM fleet";
    let ask = |dataset: &str| server.run(&place, &["fleet", "query", sum, dataset, "--format", "csv"]);
    let known = format!("present,hosts\n{},1\n", 60 * (64 + 32 + 16 - 8) * MIB);
    assert_eq!((ask("local").out, ask("s3://fleet/all").out), (known.clone(), known));
    for view in isotherm_fleet::VIEWS {
        let report = |dataset| {
            let answer = server.run(&place, &["fleet", "report", dataset, "--view", view.name, "--format", "json"]);
            assert_eq!(answer.status, 0, "{answer:?}");
            answer.out
        };
        assert_eq!(report("s3://fleet/all"), report("local"), "{}", view.name);
    }
    let wrong = ask("s3://wrong/all");
    assert!(wrong.status == 1 && wrong.err.contains("s3://wrong/all cannot be listed: NoSuchBucket"), "{wrong:?}");
}

#[test]
fn a_wrong_bucket_and_missing_credentials_are_named_with_what_to_do() {
    let server = installed_or_skip!(Server::start());
    let place = Place::new();
    history(&place, 1);
    let expect = |arguments: &[&str], change: &dyn Fn(&mut Command), expected: &[&str]| {
        let mut command = server.isotherm(&place, arguments);
        change(&mut command);
        let ran = Ran::new(command.output().unwrap());
        assert!(ran.status == 1 && expected.iter().all(|words| ran.err.contains(words)), "{arguments:?}: {ran:?}");
    };
    let same = |_: &mut Command| {};
    let write = ["fleet", "write", "--to", "s3://wrong/all", "history"];
    expect(&write, &same, &["s3://wrong/all/date=", "NoSuchBucket", "(make the bucket, or name another one)"]);
    expect(&["fleet", "check", "s3://wrong"], &same, &["s3://wrong cannot be listed: NoSuchBucket"]);
    expect(&["fleet", "check", "s3://fleet/none"], &same, &["s3://fleet/none has no rows of hosts"]);
    expect(&["fleet", "check", "gopher://fleet"], &same, &["gopher:// is no store that this isotherm knows (s3://"]);
    expect(&["fleet", "check", "s3://"], &same, &["s3:// cannot be used: "]);
    expect(&["fleet", "check", "az://fleet/all"], &same, &["az://fleet/all cannot be used: ", "Account"]);
    let nobody = |command: &mut Command| {
        command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    };
    expect(&WRITE, &nobody, &["there are no credentials; set the variables of docs/fleet.md"]);
    let nowhere = |command: &mut Command| {
        command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    };
    expect(&WRITE, &nowhere, &["s3://fleet/all", "refused", "check whether the server can be reached"]);
}

#[test]
fn a_dataset_is_compacted_by_one_at_a_time() {
    let place = Place::new();
    history(&place, 1);
    assert_eq!(place.run(&["fleet", "write", "--to", "fleet", "history"]).status, 0);
    let checked = place.run(&["fleet", "check", "fleet"]);
    assert!(checked.out.starts_with("4 files, 1 host, 1 day, "), "{checked:?}");
    let lock = isotherm_output::Output::new(&place.path("fleet/compaction")).lock().unwrap();
    let busy = place.run(&["fleet", "compact", "fleet"]);
    let expected = format!("isotherm: fleet is being compacted: process {} ", std::process::id());
    assert!(busy.status == 1 && busy.err.starts_with(&expected), "{busy:?}");
    drop(lock);
    assert_eq!(place.run(&["fleet", "compact", "fleet"]).out, "1 day of hosts, made of 4 files\n");
    assert_eq!(std::fs::read_dir(place.path("fleet")).unwrap().count(), 1, "no lock is left");
}
