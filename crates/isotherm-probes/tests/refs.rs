//! The `refs` probe on a real process of the same user.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use isotherm_core::survey::MappingRead;
use isotherm_core::{AccessProbe, AddressSpace, Granularity, Observation, Sample};
use isotherm_kernel::Processes;
use isotherm_probes::RefsProbe;
use isotherm_testing::installed_or_skip;

/// Maps two areas with a gap between them and prints their addresses. Each line of its input names an area to touch.
/// The areas are larger than any TLB, because a clear does not flush the TLB. A few pages can stay in it all the same.
const TOUCHER: &str = "
import ctypes, mmap, sys
areas = [mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE)
         for _ in range(3)]
del areas[1]
print(*[ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in areas], flush=True)
for line in sys.stdin:
    area = areas[int(line)]
    for at in range(0, 64 << 20, 4096): area[at] = 1
    print('done', flush=True)
";

/// Maps a file of 32 MiB at three addresses, the third time under another name, and prints the addresses. Each line of
/// its input names a view to touch the first half of.
const VIEWER: &str = "
import ctypes, mmap, os, sys, tempfile
directory = tempfile.mkdtemp()
names = [directory + '/' + name for name in 'ab']
with open(names[0], 'wb') as file: file.write(b'x' * (32 << 20))
os.link(*names)
views = [mmap.mmap(os.open(names[nth // 2], os.O_RDWR), 32 << 20) for nth in range(3)]
for name in names: os.unlink(name)
os.rmdir(directory)
for view in views:
    for at in range(0, 32 << 20, 4096): view[at] = 1
print(*[ctypes.addressof(ctypes.c_char.from_buffer(view)) for view in views], flush=True)
for line in sys.stdin:
    view = views[int(line)]
    for at in range(0, 16 << 20, 4096): view[at] = 1
    print('done', flush=True)
";

fn toucher() -> Result<Child, String> {
    python(TOUCHER)
}

fn python(script: &str) -> Result<Child, String> {
    let mut python = Command::new("python3");
    let child = python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    child.map_err(|e| format!("python3 cannot be run: {e}"))
}

#[test]
fn a_survey_tells_how_many_bytes_of_a_mapping_were_touched() {
    let mut child = installed_or_skip!(toucher());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let areas: Vec<u64> = lines.next().unwrap().unwrap().split(' ').map(|addr| addr.parse().unwrap()).collect();
    let mut processes = Processes::new([child.id()], false).unwrap();
    let spaces = processes.read_targets().unwrap();
    let mut probe = RefsProbe::new().with_survey(true);
    assert!(!probe.has_samples());
    probe.update(&spaces).unwrap();
    let mut read = || probe.mapping_survey().unwrap().read_and_clear(&spaces[0]).unwrap();
    read();
    // The areas have no memory before they are touched for the first time.
    for (touched, present) in [(0, [64, 0]), (1, [64, 64]), (0, [64, 64])] {
        writeln!(child.stdin.as_mut().unwrap(), "{touched}").unwrap();
        lines.next().unwrap().unwrap();
        let found = read();
        for (area, present) in present.into_iter().enumerate() {
            let of = found.iter().find(|mapping| mapping.range.contains(areas[area]));
            // A mapping can include a little memory of others.
            let mib = |bytes: fn(&MappingRead) -> u64| of.map_or(0, |mapping| (bytes(mapping) + (512 << 10)) >> 20);
            assert_eq!(mib(|mapping| mapping.figures.present), present, "{of:?}");
            assert_eq!(mib(|mapping| mapping.figures.touched), if area == touched { 64 } else { 0 }, "{of:?}");
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(read().is_empty(), "a target that has ended has no mappings");
}

#[test]
fn a_touched_mapping_is_accessed_and_an_untouched_one_is_idle() {
    let mut child = installed_or_skip!(toucher());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let areas: Vec<u64> = lines.next().unwrap().unwrap().split(' ').map(|addr| addr.parse().unwrap()).collect();
    let mut processes = Processes::new([child.id()], false).unwrap();
    let spaces = processes.read_targets().unwrap();
    let target = spaces[0].id;
    let samples: Vec<Sample> = areas.iter().map(|addr| Sample { target, addr: addr + 4096 }).collect();

    let mut probe = RefsProbe::new();
    assert_eq!(probe.granularity(), Granularity::Mapping);
    probe.update(&spaces).unwrap();
    for (touched, untouched) in [(0, 1), (1, 0), (0, 1)] {
        probe.clear(&samples).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{touched}").unwrap();
        lines.next().unwrap().unwrap();
        let mut answers = [Observation::Unobservable; 2];
        probe.read(&samples, &mut answers).unwrap();
        assert_eq!(answers[touched], Observation::Accessed);
        assert_eq!(answers[untouched], Observation::Idle);
    }

    drop(child.stdin.take());
    child.wait().unwrap();
    let mut answers = [Observation::Unobservable; 2];
    probe.clear(&samples).unwrap();
    probe.read(&samples, &mut answers).unwrap();
    assert_eq!(answers, [Observation::Idle; 2], "a target that has ended is idle");
}

#[test]
fn a_target_that_would_wait_for_too_long_is_refused_alone_and_left_out_among_others() {
    let mut children = [installed_or_skip!(toucher()), installed_or_skip!(toucher())];
    // A target that writes when nobody reads any longer ends.
    let mut outputs = children.each_mut().map(|child| BufReader::new(child.stdout.take().unwrap()));
    outputs.iter_mut().for_each(|output| assert_ne!(output.read_line(&mut String::new()).unwrap(), 0));
    let mut processes = Processes::new(children.iter().map(Child::id), false).unwrap();
    let spaces = processes.read_targets().unwrap();
    let mut strict = RefsProbe::new().with_survey(true).with_most_pause(Duration::ZERO);
    let refused = strict.update(&spaces[..1]).unwrap_err().to_string();
    assert!(refused.contains("from mapping memory for about") && refused.contains("--allow-pauses"), "{refused}");
    strict.update(&spaces).unwrap();
    let survey = strict.mapping_survey().unwrap();
    assert!(survey.read_and_clear(&spaces[0]).unwrap().is_empty());
    assert!(survey.left_out().unwrap().contains("is not observed"), "{:?}", survey.left_out());
    let mut lenient = RefsProbe::new().with_survey(true).with_most_pause(Duration::MAX);
    lenient.update(&spaces).unwrap();
    let survey = lenient.mapping_survey().unwrap();
    assert!(!survey.read_and_clear(&spaces[0]).unwrap().is_empty() && survey.left_out().is_none());
    children.iter_mut().for_each(|child| drop(child.stdin.take()));
    children.iter_mut().for_each(|child| _ = child.wait().unwrap());
}

#[test]
fn the_probe_passes_its_own_test() {
    RefsProbe::check().unwrap();
}

#[test]
fn memory_that_is_mapped_at_several_addresses_counts_once_and_was_touched_if_it_was_at_one() {
    let mut child = installed_or_skip!(python(VIEWER));
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut views: Vec<u64> = lines.next().unwrap().unwrap().split(' ').map(|addr| addr.parse().unwrap()).collect();
    let spaces = Processes::new([child.id()], false).unwrap().read_targets().unwrap();
    let mut probe = RefsProbe::new().with_survey(true);
    probe.update(&spaces).unwrap();
    let mut read = || probe.mapping_survey().unwrap().read_and_clear(&spaces[0]).unwrap();
    read();
    let by_use = views.clone();
    views.sort_unstable();
    let mib = |bytes: u64| (bytes + (512 << 10)) >> 20;
    for touched in [0, 1, 2] {
        // If the kernel takes the accessed bits of a page at that moment (reclaim, DAMON on physical memory), it marks
        // the page as accessed in each of its mappings. It never marks a page that was not accessed.
        let accessed = (0..4).map(|_| {
            writeln!(child.stdin.as_mut().unwrap(), "{touched}").unwrap();
            lines.next().unwrap().unwrap();
            let found = read();
            let of = |addr| found.iter().find(|mapping| mapping.range.contains(addr)).unwrap();
            let counted =
                [views[0], views[1], views[2]].map(|addr| (mib(of(addr).figures.present), mib(of(addr).mapped_again)));
            assert_eq!(counted, [(32, 0), (0, 32), (0, 32)]);
            mib(of(views[0]).figures.touched)
        });
        assert_eq!(accessed.min(), Some(16), "through {:#x} of {views:x?}", by_use[touched]);
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}
