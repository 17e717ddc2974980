//! The live screen on a running daemon.

use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::process::Signal;

use crate::common::{HOT_IN_COLD, Kept, Place, eventually, signal};
use crate::user::User;

/// A target, and a daemon that watches it in the group `a`, with a scheme, and in the group `b`.
fn daemon(place: &Place) -> [Kept; 2] {
    std::fs::write(place.path("hot.toml"), HOT_IN_COLD).unwrap();
    let mut command = place.isotherm(&["workload", "hot.toml", "--time", "600s"]);
    let target = Kept(command.stdout(Stdio::null()).spawn().unwrap());
    let (socket, pid) = (place.path("api.sock"), target.0.id());
    let config = format!(
        "cpu_budget: 20%\nsocket: {}\nhistory: {{directory: null}}\ngroups:\n\
         - {{name: a, select: {{pid: [{pid}]}}, schemes: [{{name: count, action: stat}}]}}\n\
         - {{name: b, select: {{pid: [{pid}]}}}}\n",
        socket.display(),
    );
    std::fs::write(place.path("isotherm.yaml"), config).unwrap();
    let mut command = place.isotherm(&["daemon", "--config", "isotherm.yaml"]);
    let mut daemon = Kept(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    eventually("the daemon listens", || {
        assert!(daemon.0.try_wait().unwrap().is_none(), "the daemon goes on");
        UnixStream::connect(place.path("api.sock")).is_ok()
    });
    [daemon, target]
}

const CONNECT: [&str; 4] = ["--socket", "api.sock", "--connect", "a"];

#[test]
fn the_screen_shows_what_a_daemon_finds_and_says_when_that_ends() {
    let place = Place::new();
    let [daemon, target] = daemon(&place);
    let mut user = User::runs(&place, &CONNECT);
    let pid = target.0.id();
    user.sees("the parts of a run are shown", |screen| {
        let lines = screen.lines();
        let holds = |words: &[&str]| lines.iter().any(|line| words.iter().all(|word| line.contains(word)));
        holds(&[&format!("isotherm pid {pid}"), "workload hot.toml"])
            && holds(&["working set", "MiB resident"])
            && holds(&["monitor", "% CPU", "regions", "reads/s"])
            && holds(&["▾hot", "work.set", "size", "rate", "age", "mapping"])
            && lines.iter().any(|line| line.starts_with("1 ") && line.contains("128 MiB"))
    });
    user.types("a");
    user.reads("count");
    user.reads("tried");
    user.types(" ");
    user.reads("PAUSED at");
    user.types(" ");
    user.sees("the screen continues", |screen| !screen.contains("PAUSED"));
    signal(&daemon.0, Signal::TERM);
    user.reads("ENDED after");
    user.reads("the daemon ended");
    user.types("q");
    assert_eq!(user.wait_for_end().exit_code(), 0);
}

#[test]
fn errors_say_what_to_do() {
    let place = Place::new();
    let fails = |arguments: &[&str], expected: &str| {
        let mut user = User::runs(&place, arguments);
        user.reads(expected);
        user.wait_for_end().exit_code()
    };
    assert_eq!(fails(&CONNECT, "start it with `isotherm daemon`"), 1);
    let _daemon = daemon(&place);
    assert_eq!(fails(&["--socket", "api.sock", "--connect", "c"], "the daemon has no group \"c\"; it has a, b"), 1);
    assert_eq!(fails(&["--connect", "a", "--pid", "1"], "cannot be used with"), 2);
    let ran = place.run(&["ctl", "--socket", "api.sock", "pause", "b"]);
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(fails(&["--socket", "api.sock", "--connect", "b"], "`isotherm ctl resume b` watches it again"), 1);
}
