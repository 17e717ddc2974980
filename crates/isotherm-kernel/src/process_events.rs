//! Reports which processes have started, executed a program, or changed their name or user, by the kernel's process
//! connector (`CONFIG_PROC_EVENTS`; Linux `Documentation/driver-api/connector.rst`).

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};
use socket2::{SockFilter, SockRef};

/// The group of messages, and the index and the value of its ID, in the connector (`CN_IDX_PROC`, `CN_VAL_PROC`).
const PROCESSES: u32 = 1;

/// What is asked of the connector (`enum proc_cn_mcast_op`).
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;

/// What happened to a process (`struct proc_event`).
const BEGUN: u32 = 1;
const EXECUTED: u32 = 2;
const CHANGED_USER: u32 = 4;
const CHANGED_NAME: u32 = 0x200;
const ENDED: u32 = 0x8000_0000;

/// The lengths of the headers of a message: those of netlink and of the connector.
const NETLINK: usize = 16;
const CONNECTOR: usize = 20;
/// Where a message says what happened, and to which thread of which process. Of a thread that has begun, the message
/// has the parent there, and the thread behind.
const WHAT: usize = NETLINK + CONNECTOR;
const THREAD: usize = WHAT + 16;
const PROCESS: usize = THREAD + 4;
const BEGUN_THREAD: usize = THREAD + 8;
const BEGUN_PROCESS: usize = BEGUN_THREAD + 4;

/// A message has fewer bytes.
const LONGEST: usize = 256;
/// At most this many messages are taken at a time.
const AT_A_TIME: usize = 8192;
/// The kernel keeps messages that take so many bytes, about 5,000, and drops what does not fit. Those of processes that
/// begin and end take nearly 1 KiB each.
const ROOM: usize = 4 << 20;

/// Events of all processes of the machine, from when this was opened.
///
/// The kernel keeps the events until they are taken. It drops some if there are too many.
#[derive(Debug)]
pub(crate) struct ProcessEvents(OwnedFd);

/// The begin or the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// `parent` has started `child`.
    Begun { parent: u32, child: u32 },
    /// The process with this ID has ended, or its first thread has.
    Ended(u32),
}

/// What was heard of processes.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The IDs of the processes that something happened to, apart from their end.
    pub(crate) pids: BTreeSet<u32>,
    /// Which processes have begun and ended, in their order.
    pub(crate) lives: Vec<Life>,
    /// Whether no event is missing.
    pub(crate) is_all: bool,
}

impl ProcessEvents {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the kernel has no process connector, or this process may not listen: it needs `CAP_NET_ADMIN`, and the first
    /// namespaces for processes, networks and users.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::CONNECTOR))?;
        // All other events wake nobody and take no room.
        SockRef::from(&socket).attach_filter(&wanted())?;
        // Without the right to have so much, there is room for about 300.
        let _ = set_socket_recv_buffer_size_force(&socket, ROOM);
        bind(&socket, &SocketAddrNetlink::new(0, PROCESSES))?;
        let events = Self(socket);
        events.ask(LISTEN)?;
        Ok(events)
    }

    /// The processes that something happened to since the last call.
    pub(crate) fn take(&self) -> Heard {
        let mut message = [0; LONGEST];
        let mut heard = Heard { pids: BTreeSet::new(), lives: Vec::new(), is_all: true };
        for _ in 0..AT_A_TIME {
            match recv(self.0.as_fd(), &mut message, RecvFlags::empty()) {
                Ok((len, _)) => {
                    let life = life(&message[..len]);
                    heard.lives.extend(life);
                    if !matches!(life, Some(Life::Ended(_))) {
                        heard.pids.extend(process(&message[..len]));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return heard,
                // Events were dropped, or cannot be read.
                Err(error) => {
                    heard.is_all = false;
                    if error != rustix::io::Errno::NOBUFS {
                        return heard;
                    }
                }
            }
        }
        heard.is_all = false;
        heard
    }

    fn ask(&self, operation: u32) -> io::Result<()> {
        let body = size_of_val(&operation);
        let mut message = Vec::with_capacity(NETLINK + CONNECTOR + body);
        // The length, the type NLMSG_DONE and flags; the number of the message, and the sender, which the kernel knows.
        message.extend(((NETLINK + CONNECTOR + body) as u32).to_ne_bytes());
        message.extend([3_u16, 0].map(u16::to_ne_bytes).as_flattened());
        message.extend([0_u32, 0].map(u32::to_ne_bytes).as_flattened());
        // The ID; the number of the message, and of the one that it answers; the length of what follows, and flags.
        message.extend([PROCESSES, PROCESSES, 0, 0].map(u32::to_ne_bytes).as_flattened());
        message.extend([body as u16, 0].map(u16::to_ne_bytes).as_flattened());
        message.extend(operation.to_ne_bytes());
        send(&self.0, &message, SendFlags::empty())?;
        Ok(())
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        // Kernels before 6.6 count who listens, and make events for as long as anybody does.
        let _ = self.ask(IGNORE);
    }
}

/// The process that a message is about. `None` if the message is too short.
fn process(message: &[u8]) -> Option<u32> {
    number(message, if number(message, WHAT)? == BEGUN { BEGUN_PROCESS } else { PROCESS })
}

/// Which process has begun or ended, if the message is about that.
fn life(message: &[u8]) -> Option<Life> {
    match number(message, WHAT)? {
        BEGUN => Some(Life::Begun { parent: number(message, PROCESS)?, child: number(message, BEGUN_PROCESS)? }),
        ENDED => Some(Life::Ended(number(message, PROCESS)?)),
        _ => None,
    }
}

/// A number of a message. `None` if the message is too short.
fn number(message: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?))
}

/// A program of the socket filter that takes the messages that a process, not one of its other threads, has begun,
/// executed a program, changed its name or user, or ended.
fn wanted() -> [SockFilter; 16] {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_MISC, BPF_RET, BPF_TAX, BPF_W, BPF_X};
    let step = |code: u32, if_true: u8, if_false: u8, k: u32| SockFilter::new(code as u16, if_true, if_false, k);
    let load = |at: usize| step(BPF_LD | BPF_W | BPF_ABS, 0, 0, at as u32);
    // The filter reads numbers as the network has them.
    let equals = |what: u32, if_true, if_false| step(BPF_JMP | BPF_JEQ | BPF_K, if_true, if_false, what.to_be());
    [
        load(WHAT),
        equals(BEGUN, 4, 0),
        equals(EXECUTED, 7, 0),
        equals(CHANGED_USER, 6, 0),
        equals(CHANGED_NAME, 5, 0),
        equals(ENDED, 4, 9),
        load(BEGUN_THREAD),
        step(BPF_MISC | BPF_TAX, 0, 0, 0),
        load(BEGUN_PROCESS),
        step(BPF_JMP | BPF_JEQ | BPF_X, 4, 5, 0),
        load(THREAD),
        step(BPF_MISC | BPF_TAX, 0, 0, 0),
        load(PROCESS),
        step(BPF_JMP | BPF_JEQ | BPF_X, 0, 1, 0),
        step(BPF_RET | BPF_K, 0, 0, u32::MAX),
        step(BPF_RET | BPF_K, 0, 0, 0),
    ]
}
