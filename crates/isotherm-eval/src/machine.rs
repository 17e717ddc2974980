//! The machine of an evaluation.

use std::path::Path;

use isotherm_core::units;
use isotherm_input::Input;
use isotherm_kernel::{Host, system_memory, transparent_huge_pages};
use serde::{Deserialize, Serialize};

/// What figures depend on. Results of machines that differ in it are not joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// An identifier that stays the same from boot to boot, and does not reveal that of the machine.
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's architecture.
    pub architecture: String,
    /// The processor's name.
    pub processor: String,
    /// The number of processors.
    pub cpus: u32,
    /// The bytes of memory.
    pub memory: u64,
    /// The setting of transparent huge pages before the evaluation. Empty if the kernel has none.
    pub huge_pages: String,
    /// Whether there was swap before the evaluation.
    pub swap: bool,
    /// The multi-generational LRU: `enabled` of the kernel. Empty if the kernel has none.
    pub lru_gen: String,
}

impl Machine {
    /// Asks this machine.
    pub fn read() -> Self {
        let root = Path::new("/");
        let host = Host::read();
        let text = |path: &str| Input::new(Path::new(path)).text().unwrap_or_default();
        let information = text("/proc/cpuinfo");
        let processor = information.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
        Self {
            id: host.id,
            kernel: host.kernel,
            architecture: host.architecture,
            processor: processor.unwrap_or_default().into(),
            cpus: host.cpus,
            memory: host.memory_bytes,
            huge_pages: transparent_huge_pages(root).unwrap_or_default(),
            swap: system_memory(root).is_ok_and(|memory| memory.swap_total > 0),
            lru_gen: text("/sys/kernel/mm/lru_gen/enabled").trim().into(),
        }
    }

    /// Whether its processors are emulated in software, so that times say little.
    pub fn is_emulated(&self) -> bool {
        self.processor.contains("QEMU TCG")
    }

    /// Kernel, processors and memory, in a line.
    pub(crate) fn described(&self) -> String {
        let processor = if self.processor.is_empty() { &self.architecture } else { &self.processor };
        let (kernel, cpus, memory) = (&self.kernel, self.cpus, units::bytes(self.memory));
        format!("Linux {kernel}, {cpus} processors ({processor}), {memory} of memory.")
    }

    /// What differs from another machine. `None` if results may be joined.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let Self { id, kernel, architecture, processor, cpus, memory, huge_pages, swap, lru_gen } = self;
        let parts = [
            ("machine", id.clone(), other.id.clone()),
            ("kernel", kernel.clone(), other.kernel.clone()),
            ("architecture", architecture.clone(), other.architecture.clone()),
            ("processor", processor.clone(), other.processor.clone()),
            ("number of processors", cpus.to_string(), other.cpus.to_string()),
            ("memory", memory.to_string(), other.memory.to_string()),
            ("transparent huge pages", huge_pages.clone(), other.huge_pages.clone()),
            ("swap", swap.to_string(), other.swap.to_string()),
            ("lru_gen", lru_gen.clone(), other.lru_gen.clone()),
        ];
        let different = parts.into_iter().find(|(_, one, other)| one != other);
        different.map(|(name, one, other)| format!("the {name} is {one:?} here, and {other:?} there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_read_and_is_itself() {
        let machine = Machine::read();
        assert!(machine.cpus > 0 && machine.memory > 1 << 20 && !machine.kernel.is_empty(), "{machine:?}");
        assert_eq!(machine.difference(&machine.clone()), None);
        let other = Machine { kernel: "1.0".into(), ..machine.clone() };
        assert!(machine.difference(&other).is_some_and(|text| text.contains("kernel is") && text.contains("1.0")));
    }
}
