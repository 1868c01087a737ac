//! What processes cost, as the kernel counts it (`proc(5)`).

use std::collections::HashMap;
use std::time::Duration;

use crate::Error;

/// What the kernel says of a process.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Usage {
    /// Time on a processor, in user space and the kernel.
    pub(crate) busy: Duration,
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
}

/// Of the process itself and all that come from it, those that have ended and were waited for
/// included.
pub(crate) fn of_tree(root: u32) -> Result<Usage, Error> {
    let mut usage = Usage::default();
    for pid in tree(root)? {
        if let Ok(stat) = Stat::read(pid) {
            usage.busy += stat.busy;
            usage.resident += stat.resident;
        }
    }
    Ok(usage)
}

/// Time on a processor of all that came from this process, have ended and were waited for.
pub(crate) fn of_ended_children() -> Result<Duration, Error> {
    Ok(Stat::read(std::process::id())?.busy_of_children)
}

/// Resident memory of the process itself and all that come from it, in bytes; a page that several
/// share counts once in all.
pub(crate) fn memory_of_tree(root: u32) -> Result<u64, Error> {
    let mut kibibytes = 0;
    for pid in tree(root)? {
        // It may have ended meanwhile.
        let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
            continue;
        };
        let mut lines = text.lines();
        let share = lines.find_map(|line| line.strip_prefix("Pss:"));
        let share = share.ok_or("no Pss in /proc/…/smaps_rollup")?;
        kibibytes += share.trim().trim_end_matches(" kB").parse::<u64>()?;
    }
    Ok(kibibytes * 1024)
}

/// The process and all that come from it.
fn tree(root: u32) -> Result<Vec<u32>, Error> {
    let mut parents: HashMap<u32, u32> = HashMap::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // It may have ended meanwhile.
        if let Ok(stat) = Stat::read(pid) {
            parents.insert(pid, stat.parent);
        }
    }
    let comes_from_root = |pid: &u32| {
        let mut ancestor = Some(*pid);
        while ancestor.is_some_and(|pid| pid != root) {
            ancestor = ancestor.and_then(|pid| parents.get(&pid).copied());
        }
        ancestor.is_some()
    };
    Ok(parents.keys().copied().filter(comes_from_root).collect())
}

/// The most memory that a process had at a time, in bytes.
pub(crate) fn peak_resident(pid: u32) -> Result<u64, Error> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB"));
    let kib: u64 = kib.ok_or("no VmHWM in /proc/…/status")?.parse()?;
    Ok(kib * 1024)
}

struct Stat {
    parent: u32,
    busy: Duration,
    /// Of its children that have ended and were waited for, which `busy` has too.
    busy_of_children: Duration,
    resident: u64,
}

impl Stat {
    fn read(pid: u32) -> Result<Self, Error> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may hold anything.
        let (_, rest) = text.rsplit_once(") ").ok_or("no name in /proc/…/stat")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |field: usize| -> Result<u64, Error> {
            // `proc(5)` counts from 1, and the state, which is first here, is its third.
            let field = fields
                .get(field - 3)
                .ok_or("a field is missing in /proc/…/stat")?;
            Ok(field.parse()?)
        };
        // Hundredths of a second on every Linux there is.
        let time = |ticks: u64| Duration::from_millis(ticks * 10);
        let of_children = number(16)? + number(17)?;
        Ok(Self {
            parent: u32::try_from(number(4)?)?,
            busy: time(number(14)? + number(15)? + of_children),
            busy_of_children: time(of_children),
            resident: number(24)? * 4096,
        })
    }
}
