//! The readers of the kernel's text files.

use isotherm_kernel::cgroup::Hierarchy;
use isotherm_kernel::{
    MappingNames, PhysicalMemory, command_line, memory_use, process_name, read_mapping_uses, read_mappings,
    system_memory,
};
use isotherm_probes::damon::{DamonPaths, Format};

use crate::bytes;
use crate::scratch::Scratch;

const PID: u32 = 1;
/// The files below `/proc` that are read.
const READ: [&str; 10] = [
    "1/cgroup",
    "1/cmdline",
    "1/comm",
    "1/status",
    "1/stat",
    "iomem",
    "meminfo",
    "pressure/memory",
    "self/cgroup",
    "self/mountinfo",
];

thread_local! {
    static TRACEFS: Scratch = {
        let files = Scratch::new("sys/kernel/tracing/events/damon/damon_aggregated/format");
        let event = files.path("sys/kernel/tracing/events/damon/damon_aggregated");
        std::fs::create_dir_all(&event).expect("a temporary directory can be written");
        std::fs::write(event.join("id"), "567\n").expect("a temporary directory can be written");
        files
    };
    /// All files have the same contents.
    static PROC: Scratch = {
        let files = Scratch::new("input");
        for name in READ {
            files.link(&format!("proc/{name}"));
        }
        files
    };
}

/// Reads the format of the tracepoint `damon:damon_aggregated`.
///
/// # Panics
/// If the reader panics.
pub fn tracepoint_format(data: &[u8]) {
    TRACEFS.with(|files| {
        files.input(data);
        if let Ok(format) = Format::read(&DamonPaths::under(&files.path(""))) {
            assert_eq!(format.id, 567);
        }
    });
}

/// Reads files of `/proc`: mappings, memory in use, physical memory, pressure and cgroups.
///
/// # Panics
/// If a reader panics.
pub fn proc_readers(data: &[u8]) {
    PROC.with(|files| {
        files.input(data);
        let root = files.path("");
        // Each reader either reads its file or refuses it.
        let _ = memory_use(&root, PID);
        let _ = system_memory(&root);
        let _ = PhysicalMemory::at(&root, []);
        if let Ok(hierarchy) = Hierarchy::find(&root) {
            let _ = hierarchy.of_process(PID);
        }
        let _ = process_name(&root, PID);
        let _ = command_line(&root, PID);
        let _ = read_mappings(data, &mut MappingNames::default(), None);
        let _ = read_mapping_uses(data);
    });
}

pub(crate) fn format_seeds() -> Vec<Vec<u8>> {
    bytes(&["\
name: damon_aggregated
ID: 567
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;
\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;
\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;
\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;
"])
}

pub(crate) fn proc_seeds() -> Vec<Vec<u8>> {
    bytes(&[
        "00001000-0009fbff : System RAM\n0009fc00-0009ffff : Reserved\n00100000-7fffffff : System RAM\n  \
         01000000-01ffffff : Kernel code\n100000000-17fffffff : System RAM\n",
        "MemTotal:        8142508 kB\nMemFree:         1024332 kB\nMemAvailable:    6012340 kB\nBuffers: 0 kB\n\
         Cached: 0 kB\nSwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nSwapTotal:       1048572 kB\n\
         SwapFree:        1048572 kB\nDirty: 0 kB\nWriteback: 0 kB\nSlab: 0 kB\nPageTables: 0 kB\n\
         Committed_AS: 0 kB\nVmallocTotal: 0 kB\nVmallocUsed: 0 kB\nVmallocChunk: 0 kB\n",
        "some avg10=0.00 avg60=1.25 avg300=0.33 total=123456\nfull avg10=0.00 avg60=0.50 avg300=0.10 total=65432\n",
        "0::/system.slice/cron.service\n",
        "12:memory:/user.slice\n11:cpu,cpuacct:/\n0::/ (deleted)\n",
        "25 30 0:23 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
         26 30 0:24 /a\\040b /mnt rw - cgroup cgroup rw,memory\n",
        "Name:\tcat\nVmRSS:\t    1234 kB\nRssAnon:\t     617 kB\nVmSwap:\t       0 kB\n",
        "55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0    [heap]\n7f0000000000-7f0000021000 r-xp 00001000 08:01 42 \
         /usr/lib/libc.so.6 (deleted)\nffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
    ])
}
