//! How the calling thread is scheduled, and which memory stays in memory.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use crate::monitor_cpu_time;

/// The highest number of a processor, plus one, that a thread can be bound to.
pub const MOST_CPUS: usize = CpuSet::MAX_CPU;

/// Gives the calling thread this nice value, −20 to 19. Threads that it starts later inherit it.
///
/// # Errors
/// The error of `setpriority(2)`: without CAP_SYS_NICE, a thread cannot lower its nice value.
pub fn set_nice(nice: i32) -> io::Result<()> {
    Ok(setpriority_process(Some(this_thread()), nice)?)
}

/// The nice value of the calling thread.
///
/// # Errors
/// The error of `getpriority(2)`.
pub fn nice() -> io::Result<i32> {
    Ok(getpriority_process(Some(this_thread()))?)
}

/// The nice value of a thread that must not wait for a processor, where it cannot have a real-time priority.
pub const URGENT: i32 = -10;

/// While this lives, the calling thread does not wait for a processor, where that is allowed: it has the lowest
/// real-time priority (`SCHED_RR`), or else the nice value [`URGENT`]. A nice value alone does not suffice where the
/// kernel groups threads by session (`autogroup` in `sched(7)`).
///
/// It is for calls of some milliseconds: other threads wait meanwhile.
#[derive(Debug)]
pub struct Urgent {
    before: Before,
    /// What its end sets again: an urgent thread has no [`pause`].
    paused: Option<Duration>,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

/// What the end of an [`Urgent`] sets again.
#[derive(Debug)]
enum Before {
    Nothing,
    Nice(i32),
    /// The policy, whose priority is 0.
    Policy(libc::c_int),
}

impl Urgent {
    /// Raises the priority of the calling thread.
    #[must_use]
    pub fn begin() -> Self {
        let nice = || nice().ok().filter(|&nice| nice > URGENT && set_nice(URGENT).is_ok());
        let before = match policy() {
            Some(policy) if set_policy(libc::SCHED_RR | policy & libc::SCHED_RESET_ON_FORK, 1) => {
                Before::Policy(policy)
            }
            Some(_) => nice().map_or(Before::Nothing, Before::Nice),
            None => Before::Nothing,
        };
        Self { before, paused: PAUSED.take(), _thread: PhantomData }
    }
}

/// An [`Urgent`] for many short calls one after another. Other threads get the processor in between.
#[derive(Debug)]
pub struct UrgentTurns {
    urgent: Option<Urgent>,
    began: Instant,
}

/// A thread is urgent for about this long without a break.
const URGENT_TURN: Duration = Duration::from_micros(100);

impl UrgentTurns {
    /// Raises the priority of the calling thread.
    #[must_use]
    pub fn begin() -> Self {
        Self { urgent: Some(Urgent::begin()), began: Instant::now() }
    }

    /// Lets other threads have the processor if none could for a tenth of a millisecond. It is for a moment at which
    /// nobody waits for this thread.
    pub fn give_way(&mut self) {
        if self.began.elapsed() >= URGENT_TURN {
            // The kernel chooses a thread anew when the priority falls.
            self.urgent = None;
            pause();
            *self = Self::begin();
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        // Lowering a priority needs no privilege.
        match self.before {
            Before::Nothing => {}
            Before::Nice(before) => _ = set_nice(before),
            Before::Policy(policy) => _ = set_policy(policy, 0),
        }
        PAUSED.set(self.paused);
    }
}

/// While this lives, the calling thread gives way to others, so that they hardly notice it. It takes a processor that
/// is idle, or waits for its turn: it takes none from the thread that runs there (`SCHED_BATCH`). It gives the
/// processor up when another thread wakes up there, because its nice value is higher, and from Linux 6.12 on because
/// its turns are longer. Where a thread may not lower its nice value again, the nice value stays as it is.
///
/// Where the kernel groups threads by session or cgroup, the nice value counts only within the group.
#[derive(Debug)]
pub struct GivingWay {
    /// How the thread was scheduled before. `None` if that did not change.
    before: Option<libc::sched_attr>,
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

/// The nice value of a thread that gives way.
const GIVES_WAY: i32 = 19;

/// The length of its turns: the longest that the kernel accepts. A thread with shorter turns that wakes up does not
/// wait until the turn is over. With short turns, the thread would get its share of the processor sooner, and others
/// would wait until the next tick of the clock.
const TURN: Duration = Duration::from_millis(100);

/// A thread that gives way pauses for [`PAUSE`] after so much CPU time.
const WORK: Duration = Duration::from_micros(250);

/// So long that a thread that waits gets the processor, and that this one wakes up on an idle one if there is one.
const PAUSE: Duration = Duration::from_micros(100);

thread_local! {
    /// The CPU time of this thread at its last pause. `None` if it does not give way.
    static PAUSED: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// Sleeps for a moment if the calling thread [gives way](GivingWay) and has worked for a quarter of a millisecond since
/// it did so last. Work of many calls has a pause after each of them: others would wait for its end otherwise.
pub fn pause() {
    let Some(before) = PAUSED.get() else { return };
    if monitor_cpu_time().saturating_sub(before) >= WORK {
        std::thread::sleep(PAUSE);
        PAUSED.set(Some(monitor_cpu_time()));
    }
}

impl GivingWay {
    /// Lets the calling thread give way, unless it has a real-time priority, or a deadline, or runs only where nothing
    /// else does (`SCHED_IDLE`).
    #[must_use]
    pub fn begin() -> Self {
        Self::with_nice(|nice| if may_return() { nice.max(GIVES_WAY) } else { nice })
    }

    /// The same with the nice value that the thread has: it gets an equal share of a busy processor, and gives it up
    /// when another thread wakes up there.
    #[must_use]
    pub fn with_equal_share() -> Self {
        Self::with_nice(|nice| nice)
    }

    fn with_nice(of: impl Fn(i32) -> i32) -> Self {
        let before = attributes().ok().filter(|before| before.sched_policy == libc::SCHED_OTHER as u32);
        let before = before.filter(|before| {
            let nice = of(before.sched_nice);
            let policy = libc::SCHED_BATCH as u32;
            let turn = TURN.as_nanos() as u64;
            let attributes =
                libc::sched_attr { sched_policy: policy, sched_nice: nice, sched_runtime: turn, ..*before };
            set_attributes(&attributes).is_ok()
        });
        if before.is_some() {
            PAUSED.set(Some(monitor_cpu_time()));
        }
        Self { before, _thread: PhantomData }
    }
}

impl Drop for GivingWay {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was found that this is allowed.
            let _ = set_attributes(before);
            PAUSED.set(None);
        }
    }
}

/// Whether a thread may lower its nice value to what it was before: with CAP_SYS_NICE, or within RLIMIT_NICE.
fn may_return() -> bool {
    let tries = || {
        let before = nice()?;
        set_nice((before + 1).min(GIVES_WAY))?;
        set_nice(before)
    };
    std::thread::Builder::new().spawn(tries).is_ok_and(|thread| matches!(thread.join(), Ok(Ok(()))))
}

/// How the calling thread is scheduled.
fn attributes() -> io::Result<libc::sched_attr> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attributes) as libc::c_uint;
    // SAFETY: the kernel writes at most `size` bytes to the structure, which is borrowed for the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Schedules the calling thread in this way.
fn set_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads the structure, which has the size that its first field says, during the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The policy of the calling thread, with its flag. `None` if it has a real-time priority, or a deadline.
fn policy() -> Option<libc::c_int> {
    // SAFETY: the call reads and writes no memory of this process.
    let policy = unsafe { libc::sched_getscheduler(0) };
    let fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE];
    fair.contains(&(policy & !libc::SCHED_RESET_ON_FORK)).then_some(policy)
}

/// Sets the policy of the calling thread. Its nice value stays. Returns whether that is allowed.
fn set_policy(policy: libc::c_int, sched_priority: libc::c_int) -> bool {
    let priority = libc::sched_param { sched_priority };
    // SAFETY: the kernel reads the structure during the call, and writes no memory of this process.
    unsafe { libc::sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// Binds the calling thread to processors, which are below [`MOST_CPUS`].
///
/// # Errors
/// The error of `sched_setaffinity(2)`: EINVAL if none of the processors is online and allowed.
pub fn bind(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().filter(|cpu| **cpu < MOST_CPUS).for_each(|cpu| set.set(*cpu));
    Ok(sched_setaffinity(Some(this_thread()), &set)?)
}

/// Keeps all memory of this process in memory that it has touched, and that it will touch, so that a thread that
/// measures never waits for its own pages.
///
/// # Errors
/// The error of `mlockall(2)`: the limit on locked memory (RLIMIT_MEMLOCK) is too low.
pub fn lock_memory() -> io::Result<()> {
    use rustix::mm::{MlockAllFlags, mlockall};
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// The calling thread. The kernel takes the ID of a thread where a process is meant.
fn this_thread() -> Pid {
    gettid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_changes_its_own_nice_value_only() {
        let before = nice().unwrap();
        let inner = std::thread::spawn(|| {
            // Raising the value needs no privilege.
            let raised = (nice().unwrap() + 1).min(19);
            set_nice(raised).map(|()| (raised, nice().unwrap()))
        });
        let (wanted, got) = inner.join().unwrap().unwrap();
        assert_eq!((got, nice().unwrap()), (wanted, before));
    }

    #[test]
    fn an_urgent_thread_is_scheduled_as_before_afterwards() {
        let of_thread = || {
            std::thread::spawn(|| {
                set_nice((nice().unwrap() + 3).min(19)).unwrap();
                let now = || (policy(), nice().unwrap());
                let before = now();
                let urgent = Urgent::begin();
                let (policy, nice) = now();
                let inner = Urgent::begin();
                drop(inner);
                assert_eq!(now(), (policy, nice), "one within another changes nothing");
                drop(urgent);
                assert_eq!(now(), before);
                // Without the privilege, nothing changes.
                assert!(policy.is_none() || nice == URGENT || (policy, nice) == before, "{policy:?} {nice} {before:?}");
            })
        };
        of_thread().join().unwrap();
    }

    #[test]
    fn a_thread_that_gives_way_is_scheduled_as_before_afterwards() {
        let of_thread = || {
            let now = || (policy(), nice().unwrap());
            let before = now();
            let giving_way = GivingWay::begin();
            let (policy, nice) = now();
            assert_eq!(policy, Some(libc::SCHED_BATCH));
            assert_eq!(nice, if may_return() { GIVES_WAY } else { before.1 });
            let turn = Duration::from_nanos(attributes().unwrap().sched_runtime);
            assert!(turn == TURN || turn.is_zero(), "nothing before Linux 6.12: {turn:?}");
            drop(Urgent::begin());
            assert_eq!(now(), (policy, nice), "it gives way after it was urgent");
            assert_eq!(Duration::from_nanos(attributes().unwrap().sched_runtime), turn, "with turns as before");
            let inner = GivingWay::begin();
            drop(inner);
            assert_eq!(now(), (policy, nice), "one within another changes nothing");
            drop(giving_way);
            assert_eq!(now(), before);
        };
        std::thread::spawn(of_thread).join().unwrap();
    }

    #[test]
    fn only_a_thread_that_gives_way_pauses_after_its_work() {
        let of_thread = || {
            let work = || {
                let began = monitor_cpu_time();
                while monitor_cpu_time() - began < WORK * 2 {}
                let before = given_up();
                pause();
                given_up() - before
            };
            assert_eq!(work(), 0);
            let giving_way = GivingWay::begin();
            let urgent = Urgent::begin();
            assert_eq!(work(), 0, "it is urgent");
            drop(urgent);
            assert!(work() > 0);
            let before = given_up();
            pause();
            assert_eq!(given_up() - before, 0, "it has not worked since");
            drop(giving_way);
            assert_eq!(work(), 0);
        };
        std::thread::spawn(of_thread).join().unwrap();
    }

    /// How many times the calling thread has given up its processor by itself.
    fn given_up() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_thread_with_an_equal_share_keeps_its_nice_value() {
        let of_thread = || {
            let before = nice().unwrap();
            let equal = GivingWay::with_equal_share();
            assert_eq!((policy(), nice().unwrap()), (Some(libc::SCHED_BATCH), before));
            drop(equal);
            assert_eq!((policy(), nice().unwrap()), (Some(libc::SCHED_OTHER), before));
        };
        std::thread::spawn(of_thread).join().unwrap();
    }

    #[test]
    fn urgent_turns_end_as_the_thread_was_before() {
        let of_thread = || {
            let now = || (policy(), nice().unwrap());
            let before = now();
            let mut turns = UrgentTurns::begin();
            let urgent = now();
            while turns.began.elapsed() < URGENT_TURN {}
            turns.give_way();
            assert_eq!(now(), urgent, "it is urgent again");
            drop(turns);
            assert_eq!(now(), before);
        };
        std::thread::spawn(of_thread).join().unwrap();
    }

    #[test]
    fn a_thread_is_bound_to_processors_that_exist() {
        let bound = std::thread::spawn(|| (bind(&[MOST_CPUS - 1]).is_err(), bind(&[MOST_CPUS]).is_err()));
        assert_eq!(bound.join().unwrap(), (true, true));
    }
}
