//! Each call of a kind fails once, for every command, and what the command does then is judged.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use portable_pty::{PtySize, native_pty_system};

use super::{Case, Effect, Fault, Kind, Room, Run, Traced};
use crate::target::Target;

/// A command that has not ended by then hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// The time from one key to the next.
const KEY: Duration = Duration::from_millis(400);

/// What is in the place of the output before.
pub(super) const PREVIOUS: &[u8] = b"what was there before";

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Up to which number each call of a kind fails. Of the calls beyond, the numbers triple.
    pub each: u64,
    /// Whether a call fails with each error of its kind, or with one that changes from call to call.
    pub every_error: bool,
}

impl Extent {
    /// Each call with each error.
    pub const ALL: Self = Self { each: u64::MAX, every_error: true };

    fn errors(self, kind: Kind, nth: u64) -> Vec<Errno> {
        let all = kind.errors();
        if self.every_error { all.to_vec() } else { vec![all[nth as usize % all.len()]] }
    }

    pub(super) fn next(self, nth: u64) -> u64 {
        if nth < self.each { nth + 1 } else { 3 * nth + 1 }
    }
}

/// What a command did wrong after a call of it had failed.
#[derive(Debug)]
pub struct Finding {
    /// The call of isotherm.
    pub call: String,
    /// What failed: the number of the call, what it was, and the error.
    pub fault: String,
    /// What is wrong.
    pub wrong: String,
}

/// What a call of isotherm came to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) traced: Traced,
    out: String,
    pub(super) err: String,
    output: Option<Vec<u8>>,
    /// What is wrong with the files that are there now.
    pub(super) files: Option<String>,
}

/// Lets each call of these kinds fail. Returns the findings, and the number of runs.
///
/// # Errors
/// If the harness itself fails, or the command fails without a fault.
pub fn sweep(room: &Room, case: &Case, kinds: &[Kind], extent: Extent) -> io::Result<(Vec<Finding>, u64)> {
    let mut findings = vec![];
    let mut target = if case.live { Some(room.target.target()?) } else { None };
    let usual = run(room, case, target.as_ref(), None)?;
    let mut runs = 1;
    if usual.traced.hung.is_some() || usual.traced.end != Ok(case.status) || usual.files.is_some() {
        return Err(io::Error::other(format!("{case:?} fails without a fault: {usual:?}")));
    }
    for &kind in kinds {
        let mut nth = 1;
        loop {
            let mut passed = true;
            for error in extent.errors(kind, nth) {
                let outcome =
                    run(room, case, target.as_ref(), Some(Fault { kind, nth, effect: Effect::Error(error) }))?;
                runs += 1;
                passed &= outcome.traced.failed.is_none();
                let mut wrong = judge(case, &usual, &outcome, kind, error);
                if outcome.traced.end == usual.traced.end {
                    wrong.extend(not_whole(room, case)?);
                }
                if let Some(Err(harm)) = target.as_mut().map(Target::check) {
                    wrong.push(format!("the target is harmed: {harm}"));
                    target = Some(room.target.target()?);
                }
                if !wrong.is_empty() {
                    let what = outcome.traced.failed.unwrap_or_else(|| "none".into());
                    let (call, fault) = (case.arguments.join(" "), format!("{kind:?} {nth}: {what}: {error}"));
                    findings.push(Finding { call, fault, wrong: wrong.join("; ") });
                }
            }
            if passed {
                break;
            }
            nth = extent.next(nth);
        }
    }
    Ok((findings, runs))
}

/// What is wrong with an outcome.
fn judge(case: &Case, usual: &Outcome, outcome: &Outcome, kind: Kind, error: Errno) -> Vec<String> {
    let mut wrong = vec![];
    let Outcome { traced, out, err, .. } = outcome;
    if let Some(waits) = &traced.hung {
        return vec![format!("it hangs: {waits}\n{err}")];
    }
    // Rust's runtime does not start a thread without its stack for signals.
    let no_stack = error == Errno::ENOMEM && err.contains("failed to allocate an alternative stack");
    if (err.contains("panicked") || out.contains("panicked")) && !no_stack {
        wrong.push(format!("it panics: {err}"));
    }
    wrong.extend(outcome.files.clone());
    let reasons = reasons(kind, error);
    let said = (err.clone() + out).to_lowercase();
    let told = reasons.iter().any(|reason| said.contains(&reason.to_lowercase()));
    match traced.end {
        // Memory that cannot be had ends a program of Rust.
        Err(Signal::SIGABRT) if no_stack || (error == Errno::ENOMEM && err.contains("memory allocation of")) => {}
        Err(signal) => wrong.push(format!("{signal} ends it: {err}")),
        Ok(status) if usual.traced.end == Ok(status) => {
            let same = out == &usual.out && outcome.output == usual.output;
            if !case.varies && !same && !told && traced.failed.is_some() {
                wrong.push(format!("another output, and no word of it: {err}"));
            }
        }
        Ok(status) if traced.failed.is_none() => wrong.push(format!("status {status} without a fault: {err}")),
        Ok(status) if !told => wrong.push(format!("status {status}, and no word of {reasons:?}: {err}{out}")),
        Ok(1) => {}
        Ok(status) => wrong.push(format!("status {status}: {err}")),
    }
    wrong
}

/// What is wrong with the recording of a command that watched and ended as usual: what it left out, it has to tell.
fn not_whole(room: &Room, case: &Case) -> io::Result<Option<String>> {
    let Some(recording) = case.output.filter(|_| case.live && case.keeps) else { return Ok(None) };
    let checked = room.call(&["check", recording]).stdout(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    let whole = checked.status.success() && !said.starts_with("whole: 0 snapshots");
    Ok((!whole).then(|| format!("it ends as usual, and its recording is not whole ({}): {said}", checked.status)))
}

/// How a message may say why something failed: in the words of the C library, or as what the error means there.
fn reasons(kind: Kind, error: Errno) -> Vec<String> {
    let words = |error: Errno| {
        let text = io::Error::from_raw_os_error(error as i32).to_string();
        text.split(" (os error").next().unwrap_or_default().to_owned()
    };
    let mut reasons = vec![words(error)];
    match (kind, error) {
        // What the C library says when there is no memory for the stack of a thread.
        (Kind::Mmap | Kind::Clone, _) => reasons.push(words(Errno::EAGAIN)),
        // libbpf tries the kernel's features and does not tell why it has found one missing.
        (Kind::Bpf, _) => reasons.push("the kernel refused to load the eBPF program".into()),
        // What ESRCH means there, and a call that was begun and could not be finished.
        (Kind::Ptrace, _) => reasons.extend(["has ended", "ended unexpectedly; the process continues"].map(Into::into)),
        // Below /proc.
        (Kind::Open, Errno::EACCES) => reasons.push("access is not permitted".into()),
        (Kind::Open, Errno::ENOENT) => reasons.extend(["there is no process", "has ended"].map(Into::into)),
        _ => {}
    }
    reasons
}

/// Runs a command with a fault in a room as it is at first, but for what was there before in the place of the output.
pub(super) fn run(room: &Room, case: &Case, target: Option<&Target>, fault: Option<Fault>) -> io::Result<Outcome> {
    clear(room)?;
    if let Some(output) = case.output {
        fs::write(room.path().join(output), PREVIOUS)?;
    }
    run_again(room, case, target, fault)
}

/// Runs a command with a fault, and looks at what it leaves behind.
pub(super) fn run_again(
    room: &Room,
    case: &Case,
    target: Option<&Target>,
    fault: Option<Fault>,
) -> io::Result<Outcome> {
    let pid = target.map(|target| target.pid().to_string()).unwrap_or_default();
    let mut arguments = vec![];
    for argument in &case.arguments {
        match argument.as_str() {
            "PID" => arguments.push(pid.clone()),
            "NAME" => arguments.push(room.target.name()),
            "RECORDING" => arguments.push(room.recording()?),
            "TARGET" => arguments.extend(room.target.0.iter().cloned()),
            other => arguments.push(other.to_owned()),
        }
    }
    let (out, err) = (tempfile::NamedTempFile::new()?, tempfile::NamedTempFile::new()?);
    let (program, terminal) = (room.isotherm.as_os_str(), case.terminal);
    let run = Run { program, arguments: &arguments, terminal, fault, limit: LIMIT };
    let traced = if terminal {
        on_terminal(room, &run, out.path(), err.as_file())?
    } else {
        run.run(|command| {
            room.prepare(command);
            if let (Ok(out), Ok(err)) = (out.reopen(), err.reopen()) {
                command.stdout(out).stderr(err);
            }
        })?
    };
    let text = |path: &Path| Ok::<_, io::Error>(String::from_utf8_lossy(&fs::read(path)?).into_owned());
    let output = case.output.and_then(|output| fs::read(room.path().join(output)).ok());
    let files = files(room, case, &traced)?;
    Ok(Outcome { traced, out: text(out.path())?, err: text(err.path())?, output, files })
}

/// Runs a command on a terminal of its own. What it shows goes to `out`.
fn on_terminal(room: &Room, run: &Run, out: &Path, err: &File) -> io::Result<Traced> {
    let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
    let pty = native_pty_system().openpty(size).map_err(io::Error::other)?;
    let name = pty.master.tty_name().ok_or(io::ErrorKind::NotFound)?;
    let mut shown = pty.master.try_clone_reader().map_err(io::Error::other)?;
    let mut copy = File::create(out)?;
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = shown.read(&mut bytes) {
            let _ = copy.write_all(&bytes[..count]);
        }
    });
    // The screen ends when somebody types q. What is typed before it is there waits for it.
    let mut keyboard = pty.master.take_writer().map_err(io::Error::other)?;
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let user = std::thread::spawn(move || {
        while end.recv_timeout(KEY) == Err(RecvTimeoutError::Timeout) && keyboard.write_all(b"q").is_ok() {}
    });
    let terminal = || File::options().read(true).write(true).open(&name);
    let (input, output, err) = (terminal()?, terminal()?, err.try_clone()?);
    let traced = run.run(move |command| {
        room.prepare(command);
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(err));
    });
    drop((ended, pty.slave));
    let _ = user.join();
    // The read ends when nobody has the terminal open.
    let _ = reader.join();
    traced
}

/// Removes everything but the inputs.
fn clear(room: &Room) -> io::Result<()> {
    for name in room.names()?.into_iter().filter(|name| !room.inputs.contains(name)) {
        let path = room.path().join(name);
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// What is wrong with the files that a command leaves.
fn files(room: &Room, case: &Case, traced: &Traced) -> io::Result<Option<String>> {
    let names = room.names()?;
    let is_expected = |name: &str| {
        room.inputs.iter().any(|input| input == name)
            || case.output.is_some_and(|output| name == output || (case.keeps && name == format!("{output}.old")))
            || (case.arguments[0] == "man" && name == "pages")
    };
    let left: Vec<_> = names.iter().filter(|name| !is_expected(name)).collect();
    // What is killed may leave files, which the next command removes.
    if !left.is_empty() && traced.end.is_ok() {
        return Ok(Some(format!("{left:?} are left")));
    }
    let Some(output) = case.output else { return Ok(None) };
    let read = |name: &str| fs::read(room.path().join(name)).unwrap_or_default();
    let (now, old) = (read(output), read(&format!("{output}.old")));
    // The log of the screen is added to.
    let is_kept = now.starts_with(PREVIOUS) || old == PREVIOUS;
    Ok(match traced.end {
        Ok(0) if now == PREVIOUS && !case.terminal => Some("it succeeds and writes nothing".into()),
        Ok(0) if !case.keeps || is_kept => None,
        _ if is_kept => None,
        Ok(0) => Some("what was there is not kept".into()),
        _ => Some(format!("it fails, and what was there is lost; now there are {} bytes", now.len())),
    })
}
