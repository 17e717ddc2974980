//! The scan of the page tables of processes, for kernels without idle page tracking.

use std::collections::BTreeMap;
use std::path::Path;

use isotherm_core::{IdleTally, chain};

use super::findings::{CgroupIdle, IdleFindings, MappingIdle, ProcessIdle, ScanMethod};
use super::population::{Member, Population};
use super::{Detail, Pacer, Scan, ScanError, Scope};
use crate::bpf::{Look, PageSurvey, Surveyed, Taken};
use isotherm_kernel::cgroup::Hierarchy;

/// A scan of the page tables of processes.
#[derive(Debug)]
pub struct PageTableScan {
    survey: PageSurvey,
    population: Population,
    scope: Scope,
    detail: Detail,
    held: BTreeMap<u32, Surveyed>,
    notes: Vec<String>,
}

impl PageTableScan {
    /// Loads the eBPF program and tests it on this process's own memory.
    ///
    /// # Errors
    /// If the program does not work here, or if a given process or cgroup does not exist.
    pub fn open(scope: Scope, detail: Detail) -> Result<Self, ScanError> {
        let root = Path::new("/");
        let hierarchy = Hierarchy::find(root);
        let mut notes = Vec::new();
        if let Err(e) = &hierarchy {
            notes.push(chain(e));
        }
        let population = Population::new(root, hierarchy.ok());
        population.check(&scope)?;
        let mut scan = Self { survey: PageSurvey::open()?, population, scope, detail, held: BTreeMap::new(), notes };
        if let Scope::Cgroups(named) = &scan.scope {
            let hierarchy = scan.population.hierarchy().ok_or_else(|| ScanError::NoCgroups(scan.notes.join("; ")))?;
            let mut notes = Vec::new();
            for named in named {
                let one = Scope::Cgroups(vec![named.clone()]);
                if scan.population.members(&one, &mut notes)?.is_empty() {
                    let fix = match hierarchy.directory() {
                        Some(directory) => {
                            format!("`systemd-cgls` and the directories below {} show the cgroups", directory.display())
                        }
                        None => "/proc/PID/cgroup shows the cgroup of a process".into(),
                    };
                    return Err(ScanError::NoProcessInCgroup { named: named.clone(), fix });
                }
            }
            scan.notes.append(&mut notes);
        }
        Ok(scan)
    }

    /// Visits all processes. Calls `report` with the result for each process, unless this is the `first` pass.
    fn pass(&mut self, first: bool, pacer: &mut Pacer, mut report: impl FnMut(ProcessIdle)) -> Result<(), ScanError> {
        self.survey.begin()?;
        let members = self.population.members(&self.scope, &mut self.notes)?;
        pacer.begin(members.iter().map(|member| member.resident).sum());
        let mut held = std::mem::take(&mut self.held);
        for member in members {
            let mut surveyed = match self.survey.take(member.pid, held.remove(&member.pid))? {
                Taken::Held(surveyed) => surveyed,
                Taken::Gone => {
                    self.population.note_ended(&member, &self.scope, &mut self.notes);
                    continue;
                }
                Taken::Refused(e) => {
                    self.notes.push(format!("process {} is left out: access to it is not permitted ({e})", member.pid));
                    continue;
                }
            };
            let process = self.one(&member, &mut surveyed, first, pacer)?;
            if surveyed.is_gone() {
                self.population.note_ended(&member, &self.scope, &mut self.notes);
            }
            if !process.total.is_empty() {
                report(process);
            }
            self.held.insert(member.pid, surveyed);
        }
        Ok(())
    }

    fn one(
        &mut self,
        member: &Member,
        surveyed: &mut Surveyed,
        first: bool,
        pacer: &mut Pacer,
    ) -> Result<ProcessIdle, ScanError> {
        let mut process = ProcessIdle {
            pid: member.pid,
            command: member.command.clone(),
            cgroup: member.cgroup.clone(),
            total: IdleTally::default(),
            mappings: Vec::new(),
        };
        let locked = self.population.locked(member);
        for mapping in &*member.mappings {
            let mut tally = IdleTally::default();
            let look = match first {
                _ if locked.iter().any(|locked| locked.intersection(mapping.range).is_some()) => Look::Locked,
                true => Look::First,
                false => Look::Again,
            };
            self.survey.visit(surveyed, mapping, look, &mut tally, &mut |bytes| pacer.step(bytes))?;
            process.total += &tally;
            if self.detail.mappings && !tally.is_empty() {
                process.mappings.push(MappingIdle {
                    range: mapping.range,
                    permissions: mapping.permissions,
                    name: mapping.name.clone(),
                    tally,
                });
            }
        }
        Ok(process)
    }
}

impl Scan for PageTableScan {
    fn method(&self) -> ScanMethod {
        ScanMethod::PageTables
    }

    fn mark(&mut self, pacer: &mut Pacer) -> Result<(), ScanError> {
        self.pass(true, pacer, |_| ())
    }

    fn read(&mut self, pacer: &mut Pacer) -> Result<IdleFindings, ScanError> {
        let mut processes: Vec<ProcessIdle> = Vec::new();
        self.pass(false, pacer, |process| processes.push(process))?;
        let mut total = IdleTally::default();
        let mut cgroups: BTreeMap<Option<String>, IdleTally> = BTreeMap::new();
        for process in &processes {
            total += &process.total;
            *cgroups.entry(process.cgroup.clone()).or_default() += &process.total;
        }
        if !self.detail.any() {
            processes.clear();
        }
        let known = self.population.hierarchy().is_some();
        let cgroups = cgroups.into_iter().map(|(path, own)| CgroupIdle { path, inode: None, own });
        Ok(IdleFindings {
            method: ScanMethod::PageTables,
            cgroup_version: self.population.hierarchy().map(Hierarchy::version),
            total,
            cgroups: if known { cgroups.collect() } else { Vec::new() },
            processes,
            notes: std::mem::take(&mut self.notes),
        })
    }
}
