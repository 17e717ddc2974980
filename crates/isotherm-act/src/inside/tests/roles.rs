//! The roles of [targets](super::target). A target runs its role on the main thread, before the test harness starts
//! other threads.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::target::{ANSWER, ROLE, SIZE};

#[used]
#[unsafe(link_section = ".init_array")]
static RUN_ROLE: extern "C" fn() = run_role;

/// Maps `size` bytes from a multiple of 2 MiB on. The memory is surrounded by inaccessible memory, so that the kernel
/// does not merge it with another mapping.
fn map_alone(size: usize) -> usize {
    // SAFETY: the kernel chooses the address of the new mapping, so it replaces no other mapping.
    let reserved = unsafe {
        mmap_anonymous(std::ptr::null_mut(), size + (8 << 20), ProtFlags::empty(), MapFlags::PRIVATE).unwrap() as usize
    };
    let memory = reserved.next_multiple_of(2 << 20) + (2 << 20);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: `memory` begins at most 4 MiB after the start of the reserved mapping, which is 8 MiB larger than `size`.
    // So this replaces a part of that mapping only, and nothing refers to it.
    unsafe { mmap_anonymous(memory as *mut _, size, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap() };
    memory
}

/// Runs the role that the environment names. It does nothing in a process that is not a target.
extern "C" fn run_role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (parent, role) = role.split_once(' ').unwrap();
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    assert_eq!(getppid().map(|pid| pid.to_string()).as_deref(), Some(parent), "the test has ended already");
    let memory = map_alone(SIZE);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let touch = || {
        for page in (memory..memory + SIZE).step_by(4096) {
            // SAFETY: the page is in the mapping, which is writable in all roles that call this. No reference to it
            // exists.
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
                // The threads end soon, so that few of them exist at a time.
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
            // SAFETY: `timer` is valid and borrowed for the call. The old value is not requested.
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
        ("fill", _) => {
            const FILLED: usize = 128 << 20;
            let start = map_alone(FILLED);
            let fill = |from: usize, to: usize| {
                for page in (start + from..start + to).step_by(4096) {
                    // SAFETY: the page is in the mapping, which is writable. No reference to it exists.
                    unsafe { (page as *mut u8).write_volatile(1) };
                }
            };
            fill(0, FILLED / 2);
            answer(start.to_string());
            let _ = std::io::stdin().lines().next();
            fill(FILLED / 2, FILLED);
            answer("filled".to_owned());
            let _ = std::io::stdin().lines().next();
        }
        ("file", path) => {
            let file = std::fs::File::open(path).unwrap();
            // SAFETY: the new mapping replaces `memory` exactly, and no reference to it exists.
            unsafe { rustix::mm::mmap(memory as *mut _, SIZE, ProtFlags::READ, flags, &file, 0).unwrap() };
            let contents = std::fs::read(path).unwrap();
            for page in (0..SIZE).step_by(4096) {
                // SAFETY: the page is in the mapping, which is readable. The file has `SIZE` bytes and is not changed.
                assert_eq!(unsafe { ((memory + page) as *const u8).read_volatile() }, contents[page]);
            }
            answer(memory.to_string());
            let _ = std::io::stdin().lines().next();
        }
        ("shared", path) => {
            let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the new mapping replaces `memory` exactly, and no reference to it exists.
            unsafe {
                rustix::mm::mmap(memory as *mut _, SIZE, access, MapFlags::SHARED | MapFlags::FIXED, &file, 0).unwrap()
            };
            touch();
            answer(memory.to_string());
            let _ = std::io::stdin().lines().next();
        }
        ("block", how) => block(how, || answer(memory.to_string()), answer),
        ("seccomp", _) => {
            // The filter allows every call. isotherm cannot know that.
            let allow = libc::sock_filter { code: 6, jt: 0, jf: 0, k: 0x7fff_0000 };
            let program = libc::sock_fprog { len: 1, filter: &allow as *const _ as *mut _ };
            // SAFETY: `program` points to one instruction, `allow`. Both are borrowed for the calls, and the kernel
            // copies them.
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
            // The main thread waits for the end of its child and cannot be interrupted meanwhile.
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            // SAFETY: the child has a stack of its own, which lives until the child has ended because this thread waits
            // for that. The child calls only functions that take no lock and do not allocate.
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
    // The test harness must not run.
    std::io::stdout().flush().unwrap();
    std::process::exit(0);
}

extern "C" fn sleep_in_child(_: *mut libc::c_void) -> libc::c_int {
    // SAFETY: all arguments are numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::usleep(1_500_000)
    }
}

/// The number of signals that were handled.
static SIGNALS: AtomicU64 = AtomicU64::new(0);
/// The sum of their values.
static SUM: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if signal != libc::SIGALRM {
        SIGNALS.fetch_add(1, SeqCst);
        // SAFETY: the handler is installed with SA_SIGINFO, so `info` is valid. Tests send this signal with
        // sigqueue(3), so it has a value.
        SUM.fetch_add(unsafe { (*info).si_value().sival_ptr } as u64, SeqCst);
    }
}

/// Installs `on_signal` as the handler of `signal`.
fn handle(signal: i32, flags: i32) {
    // SAFETY: zeros are a valid `sigaction` with an empty mask. `on_signal` has the signature that SA_SIGINFO needs,
    // and only changes atomic variables.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = flags | libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
    }
}

/// Computes in vector and general registers. The result differs if a register is changed meanwhile.
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

/// Sleeps with known values in the registers that a system call preserves. Returns the result of the call, and how many
/// of the registers have other values afterwards.
fn wrong_after_sleep(time: &libc::timespec) -> (i64, u64) {
    const KNOWN: [u64; 9] = [11, 22, 33, 44, 55, 66, 77, 88, 99];
    let mut is = KNOWN;
    let mut result = libc::SYS_nanosleep;
    let mut vector = 1.25_f64;
    let base: u64;
    // SAFETY: the kernel reads `time`, which is borrowed for the call. `rbx` is saved and restored on the stack, and
    // all other registers that change are declared.
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

/// The blocked signals, and the address and the size of the alternate signal stack.
fn signal_state() -> (Vec<i32>, usize, usize) {
    // SAFETY: zeros are valid values of `sigset_t` and `stack_t`. Both are borrowed for the calls, which fill them and
    // change nothing else.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut mask);
        let mut stack: libc::stack_t = std::mem::zeroed();
        libc::sigaltstack(std::ptr::null(), &mut stack);
        let blocked = (1..=64).filter(|signal| libc::sigismember(&mask, *signal) == 1).collect();
        (blocked, stack.ss_sp as usize, stack.ss_size)
    }
}

/// Blocks a signal in the calling thread.
fn block_signal(signal: i32) {
    // SAFETY: zeros are a valid `sigset_t`, and `sigemptyset` initializes it. It is borrowed for the calls.
    unsafe {
        let mut blocked = std::mem::zeroed();
        libc::sigemptyset(&mut blocked);
        libc::sigaddset(&mut blocked, signal);
        assert_eq!(libc::sigprocmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut()), 0);
    }
}

/// Whether the standard input has a line, or has been closed.
fn has_input() -> bool {
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    // SAFETY: `input` is one `pollfd`, and is borrowed for the call.
    unsafe { libc::poll(&mut input, 1, 0) == 1 }
}

/// Computes and makes system calls in turn, and calls `also` in each round, until the input ends. Returns the number of
/// rounds, wrong values, interrupted calls (`EINTR`), and unexpected results of calls.
fn compute(mut also: impl FnMut()) -> String {
    let expected = checksum();
    let (mut rounds, mut wrong, mut interrupted, mut odd) = (0_u64, 0, 0, 0);
    let mut pipe = [0; 2];
    // SAFETY: `pipe` has space for two file descriptors and is borrowed for the call.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let futex = 0_u32;
    let some_time = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };
    // The kernel keeps the address of the alternate stack, so the memory is never freed.
    let alternate = vec![0_u8; 64 << 10].leak();
    let stack = libc::stack_t { ss_sp: alternate.as_mut_ptr().cast(), ss_flags: 0, ss_size: alternate.len() };
    // SAFETY: `stack` describes memory that is never freed and that nothing else uses.
    assert_eq!(unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) }, 0);
    block_signal(libc::SIGUSR2);
    let state = signal_state();
    assert_eq!(state.0, [libc::SIGUSR2]);
    loop {
        for _ in 0..3 {
            wrong += u64::from(checksum() != expected);
        }
        also();
        // SAFETY: the pointers are null where the call allows it, or point to variables that are borrowed for the call
        // and have the type that the call reads or writes. The reads and writes on the pipe have one byte.
        let (result, right) = unsafe {
            match rounds % 7 {
                0 => (libc::nanosleep(&some_time, std::ptr::null_mut()).into(), 0),
                1 => (libc::poll(std::ptr::null_mut(), 0, 1).into(), 0),
                2 => {
                    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
                    let result = libc::syscall(libc::SYS_futex, &futex, operation, 0, &some_time);
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
        if has_input() {
            wrong += u64::from(signal_state() != state);
            return format!("rounds={rounds} wrong={wrong} interrupted={interrupted} odd={odd}");
        }
    }
}

/// Makes one system call that blocks until the input has a line, or for the time that `how` gives in milliseconds.
/// Calls `ready` before it. Answers with the result of the call plus 1, the error number, and the time in milliseconds.
fn block(how: &str, ready: impl FnOnce(), answer: impl Fn(String)) {
    let (how, milliseconds) = how.split_once(' ').unwrap_or((how, "0"));
    let time: u64 = milliseconds.parse().unwrap();
    let mut buffer = [0_u8; 1];
    let mut input = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    let futex = 0_u32;
    let span = libc::timespec { tv_sec: (time / 1000) as i64, tv_nsec: (time % 1000 * 1_000_000) as i64 };
    // SAFETY: `event` is valid and borrowed for the call.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(0);
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, 0, &mut event);
        epoll
    };
    // The signal is blocked, so that one that arrives before sigsuspend(2) stays pending until it.
    block_signal(libc::SIGRTMIN() + 1);
    handle(libc::SIGRTMIN() + 1, 0);
    ready();
    let began = Instant::now();
    // SAFETY: the pointers are null where the call allows it, or point to variables that are borrowed for the call and
    // have the type that the call reads or writes. `buffer` has space for the one byte that is read.
    let result: i64 = unsafe {
        match how {
            "nanosleep" => libc::nanosleep(&span, std::ptr::null_mut()).into(),
            "futex" => libc::syscall(libc::SYS_futex, &futex, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, 0, &span),
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
        }
    };
    let errno = if result == -1 { errno() } else { 0 };
    let took = began.elapsed().as_millis();
    answer(format!("result={} errno={errno} took={took}", result + 1));
}
