//! What a [target](super::target) does. Tests are run on other threads than the main one, so that this is run before
//! there are any.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::target::{ANSWER, ROLE, SIZE};

#[used]
#[unsafe(link_section = ".init_array")]
static PLAY: extern "C" fn() = play;

/// What a target runs. Everywhere else it does nothing.
extern "C" fn play() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (parent, role) = role.split_once(' ').unwrap();
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    assert_eq!(getppid().map(|pid| pid.to_string()).as_deref(), Some(parent), "the test has ended already");
    // Not in one mapping with anything else, whose flags would differ.
    let fence = |size| unsafe {
        mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::empty(), MapFlags::PRIVATE).unwrap() as usize
    };
    let place = fence(SIZE + (8 << 20)).next_multiple_of(2 << 20) + (2 << 20);
    let memory = unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        mmap_anonymous(place as *mut _, SIZE, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap() as usize
    };
    let touch = || {
        for page in (memory..memory + SIZE).step_by(4096) {
            unsafe { (page as *mut u8).write_volatile(1) };
        }
    };
    touch();
    let answer = |text: String| println!("{ANSWER}{text}");
    match role.split_once(' ').unwrap_or((role, "")) {
        ("compute", _) => {
            answer(memory.to_string());
            answer(compute(|| {}));
        }
        ("threads", _) => {
            answer(memory.to_string());
            answer(compute(|| {
                // Those of the last round have ended, or will soon.
                for _ in 0..3 {
                    std::thread::spawn(|| std::thread::sleep(Duration::from_micros(300)));
                }
            }));
        }
        ("signals", _) => {
            handle(libc::SIGRTMIN() + 1, 0);
            handle(libc::SIGALRM, libc::SA_RESTART);
            let every = libc::timeval { tv_sec: 0, tv_usec: 1000 };
            let timer = libc::itimerval { it_interval: every, it_value: every };
            unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) };
            answer(memory.to_string());
            let counts = compute(|| {});
            answer(format!("{counts} signals={} sum={}", SIGNALS.load(SeqCst), SUM.load(SeqCst)));
        }
        ("touch", _) => {
            answer(memory.to_string());
            for _ in std::io::stdin().lines() {
                touch();
                answer("touched".to_owned());
            }
        }
        ("file", path) => {
            let file = std::fs::File::open(path).unwrap();
            let flags = MapFlags::PRIVATE | MapFlags::FIXED;
            unsafe { rustix::mm::mmap(memory as *mut _, SIZE, ProtFlags::READ, flags, &file, 0).unwrap() };
            let sum: u64 =
                (memory..memory + SIZE).step_by(4096).map(|page| unsafe { *(page as *const u8) } as u64).sum();
            assert_eq!(sum, 0);
            answer(memory.to_string());
            let _ = std::io::stdin().lines().next();
        }
        ("block", how) => block(how, || answer(memory.to_string()), answer),
        ("seccomp", _) => {
            // Allows everything, as far as anybody can tell from outside.
            let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 };
            let program = libc::sock_fprog { len: 1, filter: &allow as *const _ as *mut _ };
            unsafe {
                assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program), 0);
            }
            answer(memory.to_string());
            answer(compute(|| {}));
        }
        ("vfork", _) => {
            answer(memory.to_string());
            let mut stack = vec![0_u8; 64 << 10];
            // Until its child has ended, which shares its memory, nothing interrupts the main thread.
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let pid = unsafe {
                libc::clone(sleep_in_child, stack.as_mut_ptr_range().end.cast(), flags, std::ptr::null_mut())
            };
            assert!(pid > 0);
            answer("done".to_owned());
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
        }
        other => panic!("no such role: {other:?}"),
    }
    // The harness would print its own lines.
    std::io::stdout().flush().unwrap();
    std::process::exit(0);
}

extern "C" fn sleep_in_child(_: *mut libc::c_void) -> libc::c_int {
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::usleep(1_500_000)
    }
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static SUM: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if signal != libc::SIGALRM {
        SIGNALS.fetch_add(1, SeqCst);
        SUM.fetch_add(unsafe { (*info).si_value().sival_ptr } as u64, SeqCst);
    }
}

fn handle(signal: i32, flags: i32) {
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = flags | libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Works in vector and other registers, and comes to a number that tells of any change in them.
#[inline(never)]
fn checksum() -> u64 {
    let mut lanes = [0.1_f64, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9];
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        for lane in &mut lanes {
            *lane = 3.99 * *lane * (1.0 - *lane);
        }
        mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(7);
    }
    lanes.iter().fold(mixed, |sum, lane| sum.rotate_left(5) ^ lane.to_bits())
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

/// Sleeps with known numbers in registers that a system call leaves alone, and tells how many are others afterwards.
fn wrong_after_sleep(time: &libc::timespec) -> (i64, u64) {
    const KNOWN: [u64; 9] = [11, 22, 33, 44, 55, 66, 77, 88, 99];
    let mut is = KNOWN;
    let mut result = libc::SYS_nanosleep;
    let mut vector = 1.25_f64;
    let mut base = 0_u64;
    unsafe {
        std::arch::asm!(
            "push rbx",
            "mov rbx, r12",
            "syscall",
            "mov r11, rbx",
            "pop rbx",
            inout("rax") result, inout("rdi") std::ptr::from_ref(time) => _, inout("rsi") 0_u64 => is[0],
            inout("rdx") is[1], inout("r8") is[2], inout("r9") is[3], inout("r10") is[4], inout("r12") is[5],
            inout("r13") is[6], inout("r14") is[7], inout("r15") is[8], inout("xmm9") vector,
            out("r11") base, out("rcx") _,
        );
    }
    let mut known = KNOWN;
    known[0] = 0;
    let wrong = is.iter().zip(known).filter(|(is, known)| **is != *known).count() as u64;
    (result, wrong + u64::from(base != known[5]) + u64::from(vector.to_bits() != 1.25_f64.to_bits()))
}

/// The signals that are blocked and the alternate signal stack: what a thread has beside registers.
fn signal_state() -> (Vec<i32>, usize, usize) {
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut stack);
        let blocked = (1..=64).filter(|signal| libc::sigismember(&mask, *signal) == 1).collect();
        (blocked, stack.ss_sp as usize, stack.ss_size)
    }
}

/// Computes and makes system calls in turn until the input ends, and counts what went wrong.
fn compute(mut also: impl FnMut()) -> String {
    let expected = checksum();
    let (mut rounds, mut wrong, mut interrupted, mut odd) = (0_u64, 0, 0, 0);
    let mut pipe = [0; 2];
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let word = 0_u32;
    let some_time = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    let alternate = vec![0_u8; 64 << 10];
    unsafe {
        let stack =
            libc::stack_t { ss_sp: alternate.as_ptr().cast_mut().cast(), ss_flags: 0, ss_size: alternate.len() };
        assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        libc::sigaddset(&mut blocked, libc::SIGUSR2);
        assert_eq!(libc::sigprocmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut()), 0);
    }
    let state = signal_state();
    assert_eq!(state.0, [libc::SIGUSR2]);
    loop {
        for _ in 0..3 {
            wrong += u64::from(checksum() != expected);
        }
        also();
        let (result, right) = unsafe {
            match rounds % 7 {
                0 => (libc::nanosleep(&some_time, std::ptr::null_mut()).into(), 0),
                1 => (libc::poll(std::ptr::null_mut(), 0, 1).into(), 0),
                2 => {
                    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                    let result = libc::syscall(libc::SYS_futex, &word, operation, 0, &some_time);
                    (if result == -1 && errno() == libc::ETIMEDOUT { 0 } else { result }, 0)
                }
                3 => {
                    let byte = rounds as u8;
                    let mut back = !byte;
                    assert_eq!(libc::write(pipe[1], (&raw const byte).cast(), 1), 1);
                    let result = libc::read(pipe[0], (&raw mut back).cast(), 1);
                    (result as i64, if result == 1 && back == byte { 1 } else { -2 })
                }
                4 => (
                    libc::select(
                        0,
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        std::ptr::null_mut(),
                        &mut libc::timeval { tv_sec: 0, tv_usec: 100 },
                    )
                    .into(),
                    0,
                ),
                5 => match wrong_after_sleep(&some_time) {
                    (-4, others) => {
                        *libc::__errno_location() = libc::EINTR;
                        wrong += others;
                        (-1, 0)
                    }
                    (result, others) => {
                        wrong += others;
                        (result, 0)
                    }
                },
                _ => (libc::getppid().min(1).into(), 1),
            }
        };
        if result == -1 && errno() == libc::EINTR {
            interrupted += 1;
        } else {
            odd += u64::from(result != right);
        }
        rounds += 1;
        let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        if unsafe { libc::poll(&mut input, 1, 0) } == 1 {
            wrong += u64::from(signal_state() != state);
            return format!("rounds={rounds} wrong={wrong} interrupted={interrupted} odd={odd}");
        }
    }
}

/// Is in one system call until the input has a line, or for the time that the role says; tells what that returned and
/// how
/// long it took.
fn block(how: &str, ready: impl FnOnce(), answer: impl Fn(String)) {
    let (how, milliseconds) = how.split_once(' ').unwrap_or((how, "0"));
    let time: u64 = milliseconds.parse().unwrap();
    let mut buffer = [0_u8; 1];
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let word = 0_u32;
    let span = libc::timespec { tv_sec: (time / 1000) as i64, tv_nsec: (time % 1000 * 1_000_000) as i64 };
    unsafe {
        let epoll = libc::epoll_create1(0);
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, 0, &mut event);
        // As it is used: what comes before the wait is kept for it.
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        libc::sigaddset(&mut blocked, libc::SIGRTMIN() + 1);
        libc::sigprocmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut());
        handle(libc::SIGRTMIN() + 1, 0);
        ready();
        let began = Instant::now();
        let result = match how {
            "nanosleep" => libc::nanosleep(&span, std::ptr::null_mut()).into(),
            "futex" => libc::syscall(libc::SYS_futex, &word, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 0, &span),
            "read" => libc::read(0, buffer.as_mut_ptr().cast(), 1) as i64,
            "poll" => libc::poll(&mut input, 0, time as i32).into(),
            "poll-input" => libc::poll(&mut input, 1, -1).into(),
            "epoll" => libc::epoll_wait(epoll, &mut event, 1, -1).into(),
            "epoll-time" => libc::epoll_wait(epoll, &mut event, 1, time as i32).into(),
            "sigsuspend" => {
                let mut none = std::mem::zeroed();
                libc::sigemptyset(&mut none);
                libc::sigsuspend(&none).into()
            }
            other => panic!("no such call: {other}"),
        };
        let errno = if result == -1 { errno() } else { 0 };
        let took = began.elapsed().as_millis();
        answer(format!("result={} errno={errno} took={took}", result + 1));
    }
}
