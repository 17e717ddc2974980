//! What surveys found in some memory, as the summary shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_core::survey::{Kinds, PageSums, WINDOWS};
use isotherm_core::units;
use schemars::JsonSchema;
use serde::Serialize;

use crate::bytes::Bytes;
use crate::schema::serialized_as;

/// The idle times that reports tell, in seconds.
const IDLE: [u64; 3] = [10, 60, 600];

/// The bytes of `sums`, which a survey found, that were idle for at least 10 s, 1 min and 10 min. `None` if the surveys
/// do not go back so far: only for `covered`.
pub(crate) fn idle_bytes<I: Iterator<Item = PageSums>>(sums: impl Fn() -> I, covered: Duration) -> [Option<u64>; 3] {
    IDLE.map(|seconds| {
        let window = Duration::from_secs(seconds);
        let place = WINDOWS.iter().position(|&known| known == window).filter(|_| covered >= window)?;
        let of = |PageSums { figures, within, .. }: PageSums| {
            figures.present.saturating_sub(figures.unobservable).saturating_sub(within[place])
        };
        Some(sums().map(of).fold(0, u64::saturating_add))
    })
}

/// What surveys found in some memory. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Surveyed {
    /// Bytes in memory: the mean over the surveys.
    pub resident_bytes: Bytes,
    /// Bytes that were accessed within a survey interval: the mean over the surveys.
    pub touched_bytes: Bytes,
    /// Bytes that were idle for at least 10 s at the last survey. `None` also if the surveys do not go back so far.
    pub idle_10s_bytes: Bytes,
    /// Bytes that were idle for at least 1 min at the last survey.
    pub idle_1m_bytes: Bytes,
    /// Bytes that were idle for at least 10 min at the last survey.
    pub idle_10m_bytes: Bytes,
    /// Bytes that are mapped with access permission and neither in memory nor in swap: the mean over the surveys. If it
    /// is not known what is in swap, that counts too. `None` for physical memory: what no process maps of it is free,
    /// page cache, or of the kernel.
    pub absent_bytes: Bytes,
    /// Of the bytes in memory, those without any access permission: the mean over the surveys. Left out if there are
    /// none.
    #[serde(skip_serializing_if = "Bytes::is_zero")]
    pub no_access_bytes: Bytes,
    /// Bytes in memory that a target maps at a lower address too, and that count there only: the mean over the surveys.
    /// Left out if there are none.
    #[serde(skip_serializing_if = "Bytes::is_zero")]
    pub mapped_again_bytes: Bytes,
    /// Bytes in swap at the last survey. Of a target and of the total also without such a survey, if activities tell.
    pub swapped_bytes: Bytes,
    /// Bytes by kind at the last survey.
    #[serde(skip_serializing_if = "KindBytes::is_empty")]
    pub kinds: KindBytes,
}

/// Bytes by kind. As JSON, the unobservable bytes are an object with the reasons that occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindBytes(pub Kinds);

impl KindBytes {
    fn is_empty(&self) -> bool {
        self.0 == Kinds::default()
    }

    /// A sentence about memory that was freed lazily, if there is any.
    pub(crate) fn freed(&self) -> Option<String> {
        let bytes = Some(self.0.lazily_freed).filter(|&bytes| bytes > 0)?;
        let text =
            "freed lazily (MADV_FREE), and taken back when the kernel needs memory, without swap; in no figure above";
        Some(format!("{} {text}", units::bytes(bytes)))
    }

    /// The unobservable bytes by reason, if there are any.
    pub(crate) fn reasons(&self) -> Option<String> {
        let reasons = self.0.unseen.iter().map(|(reason, bytes)| format!("{} {}", units::bytes(bytes), reason.name()));
        Some(reasons.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
    }
}

/// Bytes by kind in JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "KindBytes")]
struct KindsJson {
    /// Bytes that were freed lazily (`MADV_FREE`). They are in no other figure.
    lazily_freed_bytes: u64,
    /// The unobservable bytes by reason. Reasons without bytes are left out.
    unobservable_bytes: BTreeMap<&'static str, u64>,
}

serialized_as!(KindBytes, KindsJson);

impl From<&KindBytes> for KindsJson {
    fn from(KindBytes(kinds): &KindBytes) -> Self {
        let unobservable_bytes = kinds.unseen.iter().map(|(reason, bytes)| (reason.name(), bytes)).collect();
        Self { lazily_freed_bytes: kinds.lazily_freed, unobservable_bytes }
    }
}

impl Surveyed {
    /// Sentences about what is in no figure of hot or cold memory, and why.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let reasons = self.kinds.reasons().map(|reasons| format!("Unobservable at the end: {reasons}"));
        let again = self.mapped_again_bytes.some().map(|bytes| {
            format!("again: {bytes} that a process maps several times; each page counts where it is first")
        });
        [again, self.kinds.freed(), reasons].into_iter().flatten().collect()
    }

    /// The sums of both.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes + other.resident_bytes,
            touched_bytes: self.touched_bytes + other.touched_bytes,
            idle_10s_bytes: self.idle_10s_bytes + other.idle_10s_bytes,
            idle_1m_bytes: self.idle_1m_bytes + other.idle_1m_bytes,
            idle_10m_bytes: self.idle_10m_bytes + other.idle_10m_bytes,
            absent_bytes: self.absent_bytes + other.absent_bytes,
            no_access_bytes: self.no_access_bytes + other.no_access_bytes,
            mapped_again_bytes: self.mapped_again_bytes + other.mapped_again_bytes,
            swapped_bytes: self.swapped_bytes + other.swapped_bytes,
            kinds: KindBytes(self.kinds.0 + other.kinds.0),
        }
    }
}
