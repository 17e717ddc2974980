//! Reads the layout of the tracepoint `damon:damon_aggregated` from its format file, because it differs between
//! kernels.

use std::fs;
use std::path::{Path, PathBuf};

use super::{DamonPaths, TraceError};

/// The directory of the tracepoint in tracefs. It has one event per region at the end of each aggregation.
const EVENT: &str = "events/damon/damon_aggregated";

/// The number of the tracepoint and the layout of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The number of the tracepoint for `perf_event_open(2)`.
    pub id: u64,
    target_id: Field,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    /// `None` before Linux 5.17.
    age: Option<Field>,
}

/// A field of an event: an unsigned number in native byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

/// A decoded event: one region of an aggregation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionEvent {
    /// The number of the target, in the order of sysfs.
    pub target: u64,
    /// The number of regions of this target in this aggregation.
    pub nr_regions: u32,
    /// The first address of the region.
    pub start: u64,
    /// The address after the last one of the region.
    pub end: u64,
    /// The number of samples of the aggregation in which the region was accessed.
    pub nr_accesses: u32,
    /// The number of aggregations for which the access count has not changed; 0 if the kernel does not report it.
    pub age: u32,
}

impl Format {
    /// Reads the layout from tracefs.
    ///
    /// # Errors
    /// Fails if tracefs is not mounted or not readable, or if the tracepoint or one of its fields is missing.
    pub fn read(places: &DamonPaths) -> Result<Self, TraceError> {
        let event = find(places)?;
        let read =
            |path: &Path| fs::read_to_string(path).map_err(|source| TraceError::Read { path: path.into(), source });
        let id = event.join("id");
        let format = event.join("format");
        let number = read(&id)?.trim().parse().map_err(|_| TraceError::Format { path: id, field: "id" })?;
        Self::parse(number, &read(&format)?).map_err(|field| TraceError::Format { path: format, field })
    }

    /// Whether the kernel reports the ages of regions.
    pub fn has_age(&self) -> bool {
        self.age.is_some()
    }

    fn parse(id: u64, text: &str) -> Result<Self, &'static str> {
        let needed = |name| field(text, name).ok_or(name);
        Ok(Self {
            id,
            target_id: needed("target_id")?,
            nr_regions: needed("nr_regions")?,
            start: needed("start")?,
            end: needed("end")?,
            nr_accesses: needed("nr_accesses")?,
            age: field(text, "age"),
        })
    }

    /// Decodes an event. Returns `None` if it is too short for its fields.
    pub(super) fn decode(&self, event: &[u8]) -> Option<RegionEvent> {
        let narrow = |field: Field| Some(u32::try_from(field.get(event)?).unwrap_or(u32::MAX));
        Some(RegionEvent {
            target: self.target_id.get(event)?,
            nr_regions: narrow(self.nr_regions)?,
            start: self.start.get(event)?,
            end: self.end.get(event)?,
            nr_accesses: narrow(self.nr_accesses)?,
            age: self.age.map_or(Some(0), narrow)?,
        })
    }
}

impl Field {
    fn get(self, event: &[u8]) -> Option<u64> {
        let bytes = event.get(self.offset..self.offset.checked_add(self.size)?)?;
        match self.size {
            8 => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
            4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
            2 => Some(u16::from_ne_bytes(bytes.try_into().ok()?).into()),
            _ => None,
        }
    }
}

/// Finds a field by its name. Its line is like `field:unsigned int age; offset:44; size:4; signed:0;` (Linux
/// `Documentation/trace/events.rst`).
fn field(text: &str, name: &str) -> Option<Field> {
    text.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?;
        if declaration.split_ascii_whitespace().next_back()? != name {
            return None;
        }
        let (mut offset, mut size) = (None, None);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", value)) => offset = value.parse().ok(),
                Some(("size", value)) => size = value.parse().ok(),
                _ => {}
            }
        }
        let size = size.filter(|size| [2, 4, 8].contains(size))?;
        Some(Field { offset: offset?, size })
    })
}

/// Finds the directory of the tracepoint.
fn find(places: &DamonPaths) -> Result<PathBuf, TraceError> {
    let there = |path: &PathBuf| fs::exists(path).is_ok_and(|exists| exists);
    let events: Vec<PathBuf> = places.tracefs.iter().map(|root| root.join(EVENT)).collect();
    if let Some(event) = events.iter().find(|event| there(event)) {
        return Ok(event.clone());
    }
    // A mounted tracefs has the directory `events`.
    let mounted = places.tracefs.iter().zip(&events).find(|(root, _)| there(&root.join("events")));
    match mounted {
        Some((_, event)) => Err(TraceError::NoEvent(event.clone())),
        None => Err(TraceError::NotMounted(places.tracefs.first().cloned().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX_6_1: &str = "\
name: damon_aggregated
ID: 567
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:unsigned long target_id;	offset:8;	size:8;	signed:0;
	field:unsigned int nr_regions;	offset:16;	size:4;	signed:0;
	field:unsigned long start;	offset:24;	size:8;	signed:0;
	field:unsigned long end;	offset:32;	size:8;	signed:0;
	field:unsigned int nr_accesses;	offset:40;	size:4;	signed:0;
	field:unsigned int age;	offset:44;	size:4;	signed:0;

print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id
";

    fn event() -> Vec<u8> {
        let mut event = vec![0; 48];
        event[8..16].copy_from_slice(&3_u64.to_ne_bytes());
        event[16..20].copy_from_slice(&20_u32.to_ne_bytes());
        event[24..32].copy_from_slice(&0x1000_u64.to_ne_bytes());
        event[32..40].copy_from_slice(&0x3000_u64.to_ne_bytes());
        event[40..44].copy_from_slice(&17_u32.to_ne_bytes());
        event[44..48].copy_from_slice(&9_u32.to_ne_bytes());
        event
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let format = Format::parse(567, LINUX_6_1).unwrap();
        let event = format.decode(&event()).unwrap();
        assert_eq!(
            event,
            RegionEvent { target: 3, nr_regions: 20, start: 0x1000, end: 0x3000, nr_accesses: 17, age: 9 }
        );
    }

    #[test]
    fn an_event_without_age_has_age_zero() {
        let old: String =
            LINUX_6_1.lines().filter(|line| !line.contains(" age;")).map(|line| format!("{line}\n")).collect();
        let format = Format::parse(567, &old).unwrap();
        assert!(!format.has_age());
        assert_eq!(format.decode(&event()[..44]).unwrap().age, 0);
    }

    #[test]
    fn a_missing_field_and_a_short_event_are_rejected() {
        assert_eq!(Format::parse(1, &LINUX_6_1.replace("nr_accesses;", "hits;")), Err("nr_accesses"));
        assert_eq!(Format::parse(567, LINUX_6_1).unwrap().decode(&event()[..47]), None);
    }
}
