//! Opens processes, follows their children, and waits for their end.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use isotherm_core::AddressSpace;
use isotherm_kernel::cgroup::of_process;
use isotherm_kernel::{NamePattern, Process, Processes, Rest, Selection, Selector, Stop, TargetError, Waiter, Woken};
use isotherm_testing::or_skip;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::gettid;

/// A child that is killed when the test ends. Descendants that read from the test end too.
struct ChildGuard(Child);

impl ChildGuard {
    fn start(program: &str, arguments: &[&str]) -> Self {
        Self(Command::new(program).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.end();
    }
}

fn eventually(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "the condition never became true");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ids(processes: &mut Processes) -> Vec<u32> {
    processes.read_targets().unwrap().iter().map(|space| space.id.pid().unwrap()).collect()
}

#[test]
fn a_process_has_its_command_mappings_and_start_time() {
    let sleep = ChildGuard::start("sleep", &["1000"]);
    eventually(|| Process::open(sleep.id()).is_ok_and(|process| process.command() == "sleep 1000"));
    let process = Process::open(sleep.id()).unwrap();
    let mappings = process.mappings().unwrap();
    let named = |name: &str| mappings.iter().any(|mapping| mapping.name.contains(name));
    assert!(named("[stack]") && named("sleep"), "{mappings:?}");
    assert!(!named("[vsyscall]"), "[vsyscall] is not in user space");
    assert!(mappings.windows(2).all(|pair| pair[0].range.end() <= pair[1].range.start()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let started = Duration::from_nanos(process.started_unix_ns());
    assert!(now.abs_diff(started) < Duration::from_secs(60), "{now:?} {started:?}");
}

#[test]
fn a_missing_process_cannot_be_opened() {
    for pid in [0, u32::MAX, i32::MAX as u32] {
        assert!(matches!(Process::open(pid), Err(TargetError::NoSuchProcess(p)) if p == pid), "{pid}");
    }
}

#[test]
fn a_zombie_is_reported_as_ended() {
    let mut child = ChildGuard::start("true", &[]);
    eventually(|| !matches!(Process::open(child.id()), Ok(_) | Err(TargetError::Lookup { .. })));
    assert!(matches!(Process::open(child.id()), Err(TargetError::Ended { .. })));
    child.end();
    assert!(matches!(Process::open(child.id()), Err(TargetError::NoSuchProcess(_))));
}

#[test]
fn a_process_takes_cpu_time_only_while_it_runs() {
    // For each line, the shell maps and reads a file.
    let mut shell = ChildGuard::start("sh", &["-c", "while read line; do cat /proc/self/stat; done"]);
    let process = Process::open(shell.id()).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", shell.id())).unwrap();
    eventually(|| stat().contains(") S "));
    let before = process.cpu_time().unwrap();
    assert_eq!(process.cpu_time(), Some(before), "it waits for a line");
    std::io::Write::write_all(shell.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    eventually(|| process.cpu_time().unwrap() > before);
    shell.end();
    assert_eq!(process.cpu_time(), None);
}

#[test]
fn the_mappings_of_a_process_that_has_run_are_read_again() {
    let script = "import mmap, sys\nkept = []\nfor line in sys.stdin: kept.append(mmap.mmap(-1, int(line)))";
    let mut python = ChildGuard::start("python3", &["-c", script]);
    let mut processes = Processes::new([python.id()], false).unwrap();
    let mut sizes = || -> Vec<u64> {
        let targets = processes.read_targets().unwrap();
        targets[0].mappings.iter().map(|mapping| mapping.range.size()).collect()
    };
    for size in [123 << 20, 45 << 20] {
        std::io::Write::write_all(python.0.stdin.as_mut().unwrap(), format!("{size}\n").as_bytes()).unwrap();
        eventually(|| sizes().contains(&size));
        assert!(sizes().contains(&size), "it has not run since");
    }
}

#[test]
fn descendants_join_and_leave() {
    // The shell starts a shell that starts sleep. A line on the input ends both.
    let script = "sh -c 'sleep 60 & read line; kill $!; wait'; read line";
    let mut shell = ChildGuard::start("sh", &["-c", script]);
    let mut processes = Processes::new([shell.id()], true).unwrap();
    let process_table = processes.process_table();
    // Between fork and exec, a child has the command line of its parent.
    let sleeps = || process_table.members().values().any(|member| member.command == "sleep 60");
    eventually(|| ids(&mut processes).len() == 3 && sleeps());

    std::io::Write::write_all(shell.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    eventually(|| ids(&mut processes) == [shell.id()]);
    assert_eq!(process_table.members().len(), 1);
    shell.end();
    assert!(ids(&mut processes).is_empty());
}

/// Starts a child, and for each line of the input ends it and starts another one with the same process ID, which it
/// prints, or -1 if it must not choose the ID. A child ends when its pipe does.
const SAME_ID: &str = r#"
import ctypes, os, signal, struct, sys
libc = ctypes.CDLL(None)
def start(pid):
    # clone3(2) with set_tid
    tid = ctypes.c_int(pid)
    chosen = (ctypes.addressof(tid), 1) if pid else (0, 0)
    arguments = struct.pack('10Q', 0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, *chosen)
    reader, writer = os.pipe()
    child = libc.syscall(435, ctypes.c_char_p(arguments), len(arguments))
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    return child, writer
pid, writer = start(0)
for line in sys.stdin:
    if pid > 0:
        os.close(writer)
        os.waitpid(pid, 0)
        pid, writer = start(pid)
    print(pid, flush=True)
"#;

#[test]
fn a_process_id_that_is_used_again_within_a_clock_tick_is_of_the_new_process() {
    let mut python = ChildGuard::start("python3", &["-c", SAME_ID]);
    let mut output = BufReader::new(python.0.stdout.take().unwrap()).lines();
    let mut processes = Processes::new([python.id()], true).unwrap();
    let table = processes.process_table();
    let mut last = None;
    // Whether the new child started in the same tick as the one before it.
    let mut is_same_tick = || {
        std::io::Write::write_all(python.0.stdin.as_mut().unwrap(), b"\n").unwrap();
        let pid = output.next().unwrap().unwrap().parse::<u32>().map_err(|_| "only root may choose a process ID")?;
        processes.read_targets().unwrap();
        let members = table.members();
        let child = members.iter().find(|(id, _)| id.pid() == Some(pid));
        let (id, member) = child.expect("the new child is watched");
        assert!(!member.process.has_ended() && member.process.mappings().is_ok());
        Ok::<bool, &str>(last.replace(*id) == Some(*id))
    };
    for _ in 0..500 {
        if or_skip!(is_same_tick()) {
            break;
        }
    }
}

#[test]
fn descendants_of_a_process_that_rests_are_found() {
    let mut shell = ChildGuard::start("sh", &["-c", "sleep 60 & read line; kill $!"]);
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let stat = format!("/proc/{}/stat", shell.id());
    let has_a_child = || !std::fs::read_to_string(&children).unwrap().is_empty();
    eventually(|| has_a_child() && std::fs::read_to_string(&stat).unwrap().contains(") S "));
    let mut processes = Processes::new([shell.id()], true).unwrap();
    assert_eq!(ids(&mut processes).len(), 2);
    std::io::Write::write_all(shell.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    // A shell that is killed before it has killed its child would leave that.
    eventually(|| std::fs::read_to_string(&children).unwrap_or_default().is_empty());
}

#[test]
fn descendants_are_found_that_begin_while_their_parent_is_read() {
    const CHILDREN: usize = 40;
    let script = format!("exec 3<&0; for i in $(seq {CHILDREN}); do cat <&3 & done; wait");
    // To open a child takes about as long as the shell takes to start one.
    for _ in 0..20 {
        let shell = ChildGuard::start("sh", &["-c", &script]);
        let mut processes = Processes::new([shell.id()], true).unwrap();
        eventually(|| ids(&mut processes).len() == 1 + CHILDREN);
    }
}

#[test]
fn a_process_has_the_cgroup_that_it_was_found_in() {
    let sleep = ChildGuard::start("sleep", &["60"]);
    let mut processes = Processes::new([sleep.id()], false).unwrap();
    assert_eq!(ids(&mut processes), [sleep.id()]);
    let cgroups: Vec<_> = processes.process_table().members().values().map(|member| member.cgroup.clone()).collect();
    assert_eq!(cgroups, [of_process(Path::new("/"), std::process::id())]);
}

#[test]
fn the_process_that_watches_is_not_a_descendant_unless_it_is_named() {
    let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
    let child = ChildGuard::start("cat", &[]);
    // The descendants of many processes are found in another way.
    for others in [0, 70] {
        let others: Vec<ChildGuard> = (0..others).map(|_| ChildGuard::start("cat", &[])).collect();
        let named: Vec<u32> = others.iter().map(ChildGuard::id).chain([parent]).collect();
        let mut processes = Processes::new(named.clone(), true).unwrap();
        for _ in 0..2 {
            let watched = ids(&mut processes);
            assert!(watched.contains(&parent) && !watched.contains(&own) && !watched.contains(&child.id()));
        }
        let mut processes = Processes::new(named.into_iter().chain([own]), true).unwrap();
        let watched = ids(&mut processes);
        assert!(watched.contains(&own) && watched.contains(&child.id()), "it is named");
    }
}

/// A shell that starts this many processes as soon as it gets a line, and then rests.
fn parent_of(children: usize) -> ChildGuard {
    let script = format!("exec 3<&0; read line; for i in $(seq {children}); do cat <&3 & done; wait");
    ChildGuard::start("sh", &["-c", &script])
}

fn start_children(shell: &mut ChildGuard, children: usize) {
    std::io::Write::write_all(shell.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    let process = Process::open(shell.id()).unwrap();
    eventually(|| process.children().unwrap().len() == children);
}

#[test]
fn more_processes_than_may_be_watched_are_refused_at_the_start_and_do_not_join_later() {
    let mut shell = parent_of(5);
    let selection = |children| Selection { children, most: 3, ..Selection::pids([shell.id()]) };
    let mut processes = Processes::select(selection(true)).unwrap();
    start_children(&mut shell, 5);
    for _ in 0..3 {
        assert_eq!(ids(&mut processes).len(), 3);
    }
    let news = processes.process_table().take_news();
    assert_eq!(news, [format!("process {}, with their descendants: no more than 3 are watched", shell.id())]);

    let selection = |children| Selection { children, most: 3, ..Selection::pids([shell.id()]) };
    let error = Processes::select(selection(true)).unwrap_err();
    assert!(matches!(error, TargetError::TooMany { count: 6, most: 3, .. }), "{error}");
    assert!(Processes::select(selection(false)).is_ok());
}

#[test]
fn no_more_processes_join_at_a_reading_than_may() {
    // Of few members, the children are looked for; of many, the parents of all processes.
    for others in [0, 70] {
        let mut shell = parent_of(5);
        let others: Vec<ChildGuard> = (0..others).map(|_| ChildGuard::start("cat", &[])).collect();
        let named = others.iter().map(ChildGuard::id).chain([shell.id()]);
        let mut processes = Processes::new(named, true).unwrap();
        processes.set_most_join(2);
        let before = ids(&mut processes).len();
        assert_eq!(before, others.len() + 1);
        start_children(&mut shell, 5);
        let counts: Vec<usize> = (0..4).map(|_| ids(&mut processes).len() - before).collect();
        assert_eq!(counts, [2, 4, 5, 5], "all children join, although their parent rests");
    }
}

#[test]
fn a_look_finds_the_processes_that_are_new_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("lookedfor");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let name = Selector::Name(NamePattern::new("^lookedfor$").unwrap());
    let start = || ChildGuard::start(program.to_str().unwrap(), &["600"]);
    let mut processes = Processes::wait_for(Selection { any: vec![name], ..Selection::default() }).unwrap();
    let mut look = || {
        let found = processes.look_for_new(usize::MAX).unwrap();
        found.iter().map(|space| space.id.pid().unwrap()).collect::<Vec<_>>()
    };
    let mut look_until_found = || {
        let mut found = Vec::new();
        eventually(|| {
            found = look();
            !found.is_empty()
        });
        found
    };
    let first = start();
    assert_eq!(look_until_found(), [first.id()]);
    let second = start();
    assert_eq!(look_until_found(), [second.id()], "the first is known");
    assert_eq!(ids(&mut processes), [first.id(), second.id()]);
}

#[test]
fn without_children_only_the_process_itself_is_monitored() {
    let shell = ChildGuard::start("sh", &["-c", "exec 3<&0; cat <&3 & wait"]);
    let mut processes = Processes::new([shell.id()], false).unwrap();
    eventually(|| Process::open(shell.id()).unwrap().children().unwrap().len() == 1);
    assert_eq!(ids(&mut processes), [shell.id()]);
}

#[test]
fn the_run_ends_with_its_leader_while_others_still_run() {
    let mut leader = ChildGuard::start("sleep", &["1000"]);
    let other = ChildGuard::start("sleep", &["1000"]);
    let processes = Processes::new([leader.id(), other.id()], false).unwrap();
    let mut processes = processes.ending_with(leader.id());
    assert_eq!(ids(&mut processes).len(), 2);
    assert!(!processes.process_table().is_over());
    leader.end();
    assert!(processes.process_table().is_over() && ids(&mut processes).is_empty());
}

#[test]
fn a_wait_reports_the_end_of_a_target_and_a_stop() {
    let mut sleeps = [ChildGuard::start("sleep", &["1000"]), ChildGuard::start("sleep", &["1000"])];
    let mut processes = Processes::new(sleeps.each_ref().map(ChildGuard::id), false).unwrap();
    let (stop, table) = (Stop::new().unwrap(), processes.process_table());
    let mut waiter = Waiter::new(table.clone(), stop.clone());
    let soon = || Instant::now() + Duration::from_millis(20);
    let late = || Instant::now() + Duration::from_secs(3600);

    let due = soon();
    assert_eq!(waiter.until(due).unwrap(), Woken::Due);
    assert!(Instant::now() >= due);
    sleeps[0].end();
    let due = soon();
    assert_eq!(waiter.until(due).unwrap(), Woken::TargetEnded);
    assert!(Instant::now() >= due && !table.is_over(), "the round of the other target is not shortened");
    sleeps[1].end();
    assert_eq!(waiter.until(late()).unwrap(), Woken::TargetEnded, "no target is left to wait for");
    assert!(table.is_over() && ids(&mut processes).is_empty());
    stop.ask();
    assert_eq!(waiter.until(late()).unwrap(), Woken::Stopped);
}

#[test]
fn a_pause_ends_on_request_at_its_time_at_the_end_of_a_target_and_at_a_stop() {
    let mut sleep = ChildGuard::start("sleep", &["1000"]);
    let processes = Processes::new([sleep.id()], false).unwrap();
    let (stop, rest) = (Stop::new().unwrap(), Rest::new().unwrap());
    let mut waiter = Waiter::new(processes.process_table(), stop.clone());
    let late = || Some(Instant::now() + Duration::from_secs(3600));
    assert_eq!(waiter.rest(&rest, late()).unwrap(), Woken::Due, "no pause is requested");

    rest.want(true);
    assert_eq!(waiter.rest(&rest, Some(Instant::now() + Duration::from_millis(5))).unwrap(), Woken::Due);
    let ending = rest.clone();
    let other = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        ending.want(false);
    });
    assert_eq!(waiter.rest(&rest, late()).unwrap(), Woken::Due);
    assert!(!rest.is_wanted());
    other.join().unwrap();

    // The event of an earlier pause does not end the next one.
    rest.want(true);
    sleep.end();
    assert_eq!(waiter.rest(&rest, late()).unwrap(), Woken::TargetEnded);
    stop.ask();
    assert_eq!(waiter.rest(&rest, late()).unwrap(), Woken::Stopped);
}

#[test]
fn the_process_table_is_not_locked_during_a_wait() {
    let sleep = ChildGuard::start("sleep", &["1000"]);
    let processes = Processes::new([sleep.id()], false).unwrap();
    let (stop, process_table) = (Stop::new().unwrap(), processes.process_table());
    let mut waiter = Waiter::new(process_table.clone(), stop.clone());
    let (say, said) = mpsc::channel();
    let waiting = std::thread::spawn(move || {
        say.send(gettid().as_raw_nonzero()).unwrap();
        waiter.until(Instant::now() + Duration::from_secs(3600)).unwrap()
    });
    let waits = format!("/proc/self/task/{}/syscall", said.recv().unwrap());
    eventually(|| std::fs::read_to_string(&waits).unwrap().starts_with(&format!("{} ", libc::SYS_ppoll)));
    let (say, said) = mpsc::channel();
    std::thread::spawn(move || say.send(process_table.members().keys().copied().collect::<Vec<_>>()));
    // If the wait locked the table, there would be no answer before the stop.
    let members = said.recv_timeout(Duration::from_secs(30));
    stop.ask();
    assert_eq!(waiting.join().unwrap(), Woken::Stopped);
    assert_eq!(members, Ok(vec![Process::open(sleep.id()).unwrap().id()]));
}

#[test]
fn a_process_that_calls_exec_repeatedly_never_appears_ended() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("again");
    std::fs::write(&script, "[ $1 -gt 0 ] || exec sleep 1000\nexec sh $0 $(($1 - 1))\n").unwrap();
    let restless = ChildGuard::start("sh", &[script.to_str().unwrap(), "300"]);
    let mut processes = Processes::new([restless.id()], false).unwrap();
    let process = Process::open(restless.id()).unwrap();
    while !process.command().starts_with("sleep") {
        assert!(!process.mappings().unwrap().is_empty());
        assert_eq!(ids(&mut processes), [restless.id()]);
    }
}

/// A process whose child shares its address space, until the line `exec` comes.
const SHARED_SPACE: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 20)
program = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
pause = ctypes.cast(libc.pause, program)
top = (ctypes.addressof(stack) + len(stack)) // 16 * 16
CLONE_VM, SIGCHLD = 0x100, 17
print(libc.clone(pause, ctypes.c_void_p(top), CLONE_VM | SIGCHLD, None), flush=True)
sys.stdin.readline()";

#[test]
fn processes_that_share_an_address_space_are_one_target_until_one_of_them_ends() {
    let mut python = ChildGuard::start("python3", &["-c", SHARED_SPACE]);
    let mut child = String::new();
    BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut child).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    let mut processes = Processes::new([python.id()], true).unwrap();
    eventually(|| processes.process_table().members().len() == 2);
    assert_eq!(ids(&mut processes), [python.id()]);
    let shares: Vec<_> = processes.process_table().members().values().map(|member| member.shares).collect();
    assert_eq!(shares.iter().filter_map(|owner| owner.and_then(|id| id.pid())).collect::<Vec<_>>(), [python.id()]);
    let news = processes.process_table().take_news();
    assert!(news[0].contains(&format!("process {child}")) && news[0].contains("shares the memory"), "{news:?}");
    assert_eq!(ids(&mut processes), [python.id()]);
    assert_eq!(processes.process_table().take_news(), Vec::<String>::new());
    // The memory of the process that has ended is that of its child now.
    python.end();
    eventually(|| ids(&mut processes) == [child]);
    kill_process(Pid::from_raw(child.cast_signed()).unwrap(), Signal::KILL).unwrap();
}
