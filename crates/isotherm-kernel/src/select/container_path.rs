//! What the path of a cgroup says of containers, by the names that runtimes give to their cgroups.

/// What a part of a cgroup's path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// The cgroup of a container that has these names. The first is what it is called.
    Named(Vec<String>),
    /// The cgroup of a container with this ID.
    Id(&'a str),
    /// The cgroup of a pod with this UID, with hyphens.
    Pod(String),
    /// Another one.
    Other,
}

/// The parts of the path of a cgroup, each with its text and what it is.
pub(super) fn parts(path: &str) -> impl Iterator<Item = (&str, Part<'_>)> {
    let texts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let around = (0..texts.len()).map(move |nth| {
        let above = nth.checked_sub(1).map_or("", |above| texts[above]);
        (above, texts[nth], texts.get(nth + 1).copied())
    });
    around.map(|(above, part, below)| (part, what(above, part, below)))
}

fn what<'a>(above: &str, part: &'a str, below: Option<&str>) -> Part<'a> {
    if let Some(names) = names_in(above, part, below) {
        return Part::Named(names);
    }
    if let Some(uid) = pod_in(part) {
        return Part::Pod(uid);
    }
    id_in(above, part).map_or(Part::Other, Part::Id)
}

/// The ID of a container: 64 hexadecimal digits at the end of the part, or those of a task of ECS and a number. The
/// monitors of containers (conmon) have cgroups of their own, which are left out.
fn id_in<'a>(above: &str, part: &'a str) -> Option<&'a str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if part.contains("conmon") {
        return None;
    }
    if above == "ecs" {
        let (task, number) = part.split_once('-')?;
        let is_task = task.len() == 32 && is_hex(task) && number.bytes().all(|byte| byte.is_ascii_digit());
        return is_task.then_some(part);
    }
    let id = part.rsplit(['-', ':']).next()?;
    (id.len() == 64 && is_hex(id)).then_some(id)
}

/// The UID of a pod, with hyphens.
fn pod_in(part: &str) -> Option<String> {
    let part = part.strip_suffix(".slice").unwrap_or(part);
    let (_, uid) = part.rsplit_once("pod").filter(|(before, _)| before.is_empty() || before.ends_with('-'))?;
    let is_uid = uid.len() >= 32 && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'-' | b'_'));
    is_uid.then(|| uid.replace('_', "-"))
}

/// The names of a container, where they are in the path itself.
fn names_in(above: &str, part: &str, below: Option<&str>) -> Option<Vec<String>> {
    if let Some(name) = part.strip_prefix("lxc.payload.").or_else(|| part.strip_prefix("lxd.qemu.")) {
        return Some(vec![name.into()]);
    }
    // LXC 3, and Proxmox. The monitors of later versions are beside the payloads.
    if above == "lxc" {
        return Some(vec![part.into()]);
    }
    if let Some(name) = part.strip_prefix("systemd-nspawn@").and_then(|part| part.strip_suffix(".service")) {
        // Beside the container, the service has its manager.
        return (below != Some("supervisor")).then(|| vec![unescaped(name)]);
    }
    let scope = part.strip_suffix(".scope")?;
    if let Some(machine) = scope.strip_prefix("machine-") {
        let machine = unescaped(machine);
        let of_libvirt = libvirt_name(&machine).map(str::to_owned);
        return Some(of_libvirt.into_iter().chain([machine]).collect());
    }
    // What runc and crun call a unit that nobody names. An ID is one of another program that uses them.
    let name = scope.strip_prefix("runc-").or_else(|| scope.strip_prefix("crun-"))?;
    id_in(above, part).is_none().then(|| vec![unescaped(name)])
}

/// The name that libvirt's users know: of `lxc-4711-box`, `box`.
fn libvirt_name(machine: &str) -> Option<&str> {
    let (number, name) = machine.strip_prefix("lxc-").or_else(|| machine.strip_prefix("qemu-"))?.split_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !name.is_empty()).then_some(name)
}

/// The name that systemd has escaped: a byte other than letters, digits, `:`, `_` and `.` is `\x` and two digits
/// (systemd.unit(5)).
fn unescaped(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        match after.get(..2).map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    isotherm_core::text_of(&bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_systemd_has_escaped_is_as_it_was() {
        for (escaped, name) in [(r"my\x2dbox", "my-box"), (r"a\x2", r"a\x2"), (r"\xzz\x2d", r"\xzz-"), ("a", "a")] {
            assert_eq!(unescaped(escaped), name);
        }
    }
}
