//! Containers, by the cgroups that their runtimes make, and by the files in which these keep their names.
//!
//! | runtime | a part of the cgroup's path | names |
//! |---|---|---|
//! | Docker | `docker-ID.scope`, `docker/ID` | `/var/lib/docker/containers/ID/config.v2.json` |
//! | Podman | `libpod-ID.scope`, `libpod-ID` | `/var/lib/containers/storage/*-containers/containers.json` |
//! | both, of a user without root | `user-UID.slice/…` | the same below `.local/share` in the home of the user |
//! | containerd, CRI-O | `cri-containerd-ID.scope`, `crio-ID.scope`, `ID` | those of Kubernetes or nerdctl |
//! | containerd (ctr) | `NAMESPACE/NAME` | `/run/containerd/io.containerd.runtime.v2.task/NAMESPACE/NAME` |
//! | nerdctl | `nerdctl-ID.scope` | `/var/lib/nerdctl/HASH/names/NAMESPACE/NAME` |
//! | Kubernetes | `kubepods-…-podUID.slice`, `podUID` | `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` |
//! | LXC, LXD, Incus, Proxmox | `lxc.payload.NAME`, `lxc/NAME`, `lxd.qemu.NAME` | the cgroup's |
//! | systemd-nspawn | `machine-NAME.scope`, `systemd-nspawn@NAME.service` | the cgroup's |
//! | libvirt | `machine-DRIVER\x2dNUMBER\x2dNAME.scope` | the cgroup's |
//! | runc, crun | `runc-NAME.scope`, `crun-NAME.scope` | the cgroup's |
//! | ECS | `ecs/TASK-NUMBER`, `ecs/TASK/ID` | none |
//!
//! Without a log, the names in Kubernetes are those that the runtime has [told](super::tell_containers), or those in
//! the annotations of the container, which containerd and CRI-O keep in their state directories.
//!
//! An ID has 64 hexadecimal digits, one of ECS 32 and a number. A client of containerd may choose another one, which is
//! a name here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use isotherm_core::text_of;
use isotherm_input::Input;

use super::container_path::{Part, parts};
use super::told::told;

/// An ID is named by this many of its first characters, or more.
const LEAST_OF_ID: usize = 4;

/// A file of a runtime that is larger is not read.
const LARGEST_FILE: u64 = 16 << 20;

/// What a container is called, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// Its name, or the first characters of its ID.
    pub container: String,
    /// The pod, in Kubernetes: its name, or its UID.
    pub pod: Option<String>,
    /// The namespace of the pod.
    pub namespace: Option<String>,
}

impl ContainerNames {
    /// Whether the container, its pod, or its pod with the namespace, as `NAMESPACE/POD`, has this name.
    fn has(&self, wanted: &str) -> bool {
        let (namespace, pod) = (self.namespace.as_deref(), self.pod.as_deref());
        let in_namespace =
            || wanted.split_once('/').is_some_and(|(of, name)| namespace == Some(of) && pod == Some(name));
        self.container == wanted || pod == Some(wanted) || in_namespace()
    }
}

/// Where containerd, also that of k3s, and CRI-O keep the OCI configurations of the containers that they run for
/// Kubernetes: what is before the ID and after it.
const BUNDLES: [(&str, &str); 3] = [
    ("run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("run/containers/storage/overlay-containers", "userdata/config.json"),
];

/// The annotations of the pod, the namespace and the container there: those of containerd, then those of CRI-O.
const ANNOTATIONS: [[&str; 3]; 2] = [
    ["io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.container-name"],
    ["io.kubernetes.pod.name", "io.kubernetes.pod.namespace", "io.kubernetes.container.name"],
];

/// So many characters of an ID stand for it, as runtimes show it.
const SHOWN_OF_ID: usize = 12;

/// The containers of the machine.
#[derive(Debug)]
pub struct Containers {
    root: PathBuf,
    /// What runtimes know of a container, by its ID.
    known: RefCell<HashMap<String, RuntimeNames>>,
}

/// What runtimes know of a container.
#[derive(Debug, Default)]
struct RuntimeNames {
    names: Vec<String>,
    /// The names of the pod, the namespace and the container in Kubernetes.
    in_pod: Option<[String; 3]>,
}

impl Containers {
    /// Those of the machine whose `/` is `root`.
    pub fn new(root: &Path) -> Self {
        Self { root: root.into(), known: RefCell::default() }
    }

    /// Forgets the names, which may change.
    pub fn forget(&self) {
        self.known.borrow_mut().clear();
    }

    /// What the innermost container is called that the cgroup at `path` belongs to. `None` if it is that of none.
    pub fn names_in(&self, path: &str) -> Option<ContainerNames> {
        let mut found: Option<ContainerNames> = None;
        let mut pod_uid = None;
        for (_, part) in parts(path) {
            match part {
                Part::Named(names) => {
                    let container = names.into_iter().next().unwrap_or_default();
                    found = Some(ContainerNames { container, ..ContainerNames::default() });
                }
                Part::Pod(uid) => pod_uid = Some(uid),
                Part::Id(id) => found = Some(self.names_of_container(id, path, pod_uid.take())),
                Part::Other => {}
            }
        }
        found
    }

    fn names_of_container(&self, id: &str, path: &str, pod_uid: Option<String>) -> ContainerNames {
        // The log of a container appears soon after it, and the runtime is asked again, so that both are looked for
        // again.
        let named = |[pod, namespace, container]: [String; 3]| ContainerNames {
            container,
            pod: Some(pod),
            namespace: Some(namespace),
        };
        let in_bundle = || self.known(id, path, |known| known.in_pod.clone()).map(named);
        if let Some(names) = self.in_logs(id).next().map(named).or_else(|| told(id)).or_else(in_bundle) {
            return names;
        }
        let name = self.known(id, path, |known| known.names.first().cloned());
        let container = name.unwrap_or_else(|| id.chars().take(SHOWN_OF_ID).collect());
        ContainerNames { container, pod: pod_uid, namespace: None }
    }

    /// What `of` makes of what runtimes know of a container whose cgroup is at `path`.
    fn known<T>(&self, id: &str, path: &str, of: impl FnOnce(&RuntimeNames) -> T) -> T {
        let mut known = self.known.borrow_mut();
        of(known.entry(id.into()).or_insert_with(|| self.find(id, path)))
    }

    fn find(&self, id: &str, path: &str) -> RuntimeNames {
        let mut names = self.names_of(id, path);
        let in_pod = self.in_bundle(id).or_else(|| names.iter().find_map(|name| of_dockershim(name)));
        for [pod, namespace, container] in self.in_logs(id).chain(in_pod.clone()) {
            names.extend([format!("{namespace}/{pod}"), pod, container]);
        }
        RuntimeNames { names, in_pod }
    }

    /// The names of the pod, the namespace and the container that a runtime has in the configuration of a container.
    fn in_bundle(&self, id: &str) -> Option<[String; 3]> {
        BUNDLES.iter().find_map(|(before, after)| {
            let config = self.json(&format!("{before}/{id}/{after}"))?;
            let named = |names: &[&str; 3]| {
                let all = names.map(|name| config["annotations"][name].as_str().map(String::from));
                all.into_iter().collect::<Option<Vec<_>>>()?.try_into().ok()
            };
            ANNOTATIONS.iter().find_map(named)
        })
    }

    /// The names of the pod, the namespace and the container that kubelet has for a container.
    fn in_logs(&self, id: &str) -> impl Iterator<Item = [String; 3]> {
        let suffix = format!("-{id}.log");
        self.entries("var/log/containers").into_iter().filter_map(move |log| {
            let name = log.rsplit('/').next()?.strip_suffix(&suffix)?;
            let parts: Vec<String> = name.split('_').map(String::from).collect();
            parts.try_into().ok()
        })
    }

    /// Whether the cgroup at `path` is that of the container or pod that `wanted` names, or lies below it.
    pub(super) fn is_in(&self, path: &str, wanted: &str) -> bool {
        let mut above = "";
        parts(path).any(|(text, part)| {
            if text == wanted && self.has_task(above, text) {
                return true;
            }
            above = text;
            match part {
                Part::Named(names) => names.iter().any(|name| name == wanted),
                Part::Pod(uid) => uid == wanted.replace('_', "-"),
                Part::Id(id) => {
                    wanted.len() >= LEAST_OF_ID && id.starts_with(wanted) || self.has_name(id, path, wanted)
                }
                Part::Other => false,
            }
        })
    }

    /// Whether containerd runs a container of this name in this namespace.
    fn has_task(&self, namespace: &str, name: &str) -> bool {
        let tasks = self.root.join("run/containerd/io.containerd.runtime.v2.task");
        !namespace.is_empty() && tasks.join(namespace).join(name).is_dir()
    }

    fn has_name(&self, id: &str, path: &str, wanted: &str) -> bool {
        told(id).is_some_and(|names| names.has(wanted))
            || self.known(id, path, |known| known.names.iter().any(|name| name == wanted))
    }

    /// The names that runtimes know a container by, whose cgroup is at `path`. A user can give names to containers of
    /// its own only.
    fn names_of(&self, id: &str, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        let of_user = user_of(path).and_then(|uid| self.home(uid)).map(|home| format!("{home}/.local/share"));
        for share in ["var/lib"].into_iter().map(String::from).chain(of_user) {
            if let Some(config) = self.json(&format!("{share}/docker/containers/{id}/config.v2.json")) {
                names.extend(config["Name"].as_str().map(|name| name.trim_start_matches('/').to_owned()));
            }
            for driver in ["overlay", "btrfs", "vfs", "zfs"] {
                let list = self.json(&format!("{share}/containers/storage/{driver}-containers/containers.json"));
                for container in list.iter().filter_map(|list| list.as_array()).flatten() {
                    if container["id"] == id {
                        let all = container["names"].as_array().into_iter().flatten();
                        names.extend(all.filter_map(|name| name.as_str()).map(String::from));
                    }
                }
            }
        }
        // nerdctl has a file for each name, which holds the ID.
        for hash in self.entries("var/lib/nerdctl") {
            for namespace in self.entries(&format!("{hash}/names")) {
                for name in self.entries(&namespace) {
                    if self.text(&name).is_some_and(|content| content.trim() == id) {
                        names.extend(name.rsplit('/').next().map(String::from));
                    }
                }
            }
        }
        names
    }

    /// The home of a user, relative to the root.
    fn home(&self, uid: &str) -> Option<String> {
        let users = self.text("etc/passwd")?;
        let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let home = fields.into_iter().find(|fields| fields.get(2) == Some(&uid))?.get(5)?.trim_start_matches('/');
        Some(home.into())
    }

    fn text(&self, path: &str) -> Option<String> {
        Input::new(&self.root.join(path)).limited_to(LARGEST_FILE).text().ok()
    }

    fn json(&self, path: &str) -> Option<serde_json::Value> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    /// The paths of the entries of a directory, relative to the root.
    fn entries(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        entries.map(|entry| format!("{directory}/{}", text_of(entry.file_name().as_bytes()))).collect()
    }
}

/// The names of the pod, the namespace and the container in a name that Kubernetes gives to a container of Docker:
/// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`.
fn of_dockershim(name: &str) -> Option<[String; 3]> {
    let parts: Vec<&str> = name.strip_prefix("k8s_")?.split('_').collect();
    let [container, pod, namespace, _, _] = parts[..] else { return None };
    Some([pod, namespace, container].map(String::from))
}

/// The ID of the user in whose slice the cgroup at `path` is.
fn user_of(path: &str) -> Option<&str> {
    path.split('/').find_map(|part| part.strip_prefix("user-")?.strip_suffix(".slice"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "6f1d9e4a-1c2b-4d3e-8f9a-0b1c2d3e4f50";

    fn made(files: &[(String, String)]) -> (tempfile::TempDir, Containers) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let containers = Containers::new(root.path());
        (root, containers)
    }

    #[test]
    fn a_container_is_found_by_its_id_in_the_cgroups_of_all_runtimes() {
        let (_root, containers) = made(&[]);
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/kubepods.slice/x/cri-containerd-{ID}.scope"),
            format!("/kubepods/besteffort/pod{POD}/{ID}"),
            format!("/system.slice/kubepods.slice:cri-containerd:{ID}"),
        ] {
            assert!(containers.is_in(&path, ID) && containers.is_in(&path, &ID[..12]), "{path}");
            assert!(!containers.is_in(&path, "012") && !containers.is_in(&path, "fedc"), "{path}");
        }
        assert!(!containers.is_in(&format!("/machine.slice/libpod-conmon-{ID}.scope"), ID));
    }

    #[test]
    fn a_process_of_a_nested_container_belongs_to_all_containers_around_it() {
        let (inner, other) = (ID.replace('0', "7"), ID.replace('0', "9"));
        let (_root, containers) =
            made(&[(format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/outer"}"#.into())]);
        for around in [
            format!("/docker/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/lxc.payload.outer/docker/{ID}"),
            format!("/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{ID}.scope", POD.replace('-', "_")),
        ] {
            for nested in [format!("{around}/docker/{inner}"), format!("{around}/system.slice/docker-{inner}.scope")] {
                for wanted in [ID, "outer", &inner[..12]] {
                    assert!(containers.is_in(&nested, wanted), "{wanted} in {nested}");
                }
                assert!(!containers.is_in(&nested, &other[..12]), "{nested}");
            }
            assert!(!containers.is_in(&around, &inner[..12]), "a process of the outer one alone");
        }
        let in_pod = format!("/kubepods/burstable/pod{POD}/{ID}/docker/{inner}");
        assert!(containers.is_in(&in_pod, POD) && containers.is_in(&in_pod, &inner));
    }

    #[test]
    fn the_cgroup_of_a_container_says_what_it_is_called() {
        let other = ID.replace('0', "9");
        let (_root, containers) = made(&[
            (format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/web"}"#.into()),
            (format!("var/log/containers/pod-1_shop_cart-{other}.log"), String::new()),
        ]);
        let names = |path: &str| {
            let found = containers.names_in(path)?;
            Some((found.container, found.pod.unwrap_or_default(), found.namespace.unwrap_or_default()))
        };
        let expected = |container: &str, pod: &str, namespace: &str| {
            Some((container.to_owned(), pod.to_owned(), namespace.to_owned()))
        };
        assert_eq!(names(&format!("/docker/{ID}")), expected("web", "", ""));
        let of_pod = |id: &str| format!("/kubepods/besteffort/pod{POD}/{id}");
        assert_eq!(names(&of_pod(&other)), expected("cart", "pod-1", "shop"));
        assert_eq!(names(&of_pod(&ID.replace('0', "7"))), expected("7123456789ab", POD, ""));
        assert_eq!(names("/lxc.payload.db/init.scope"), expected("db", "", ""));
        assert_eq!(names("/system.slice/redis.service"), None);
    }

    #[test]
    fn a_pod_has_the_names_that_its_runtime_keeps() {
        let id = |digit: &str| ID.replace('0', digit);
        let of_containerd = r#"{"annotations": {"io.kubernetes.cri.container-name": "cart",
            "io.kubernetes.cri.sandbox-name": "pod-1", "io.kubernetes.cri.sandbox-namespace": "shop"}}"#;
        let of_crio = r#"{"annotations": {"io.kubernetes.container.name": "cart",
            "io.kubernetes.pod.name": "pod-1", "io.kubernetes.pod.namespace": "shop"}}"#;
        let of_docker = format!(r#"{{"Name": "/k8s_cart_pod-1_shop_{POD}_0"}}"#);
        let (_root, containers) = made(&[
            (
                format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", id("6")),
                of_containerd.into(),
            ),
            (format!("run/containers/storage/overlay-containers/{}/userdata/config.json", id("7")), of_crio.into()),
            (format!("var/lib/docker/containers/{}/config.v2.json", id("8")), of_docker),
            (format!("run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{}/config.json", id("9")), "{}".into()),
        ]);
        for digit in ["6", "7", "8"] {
            let path = format!("/kubepods/besteffort/pod{POD}/{}", id(digit));
            let names = containers.names_in(&path).unwrap();
            let expected =
                ContainerNames { container: "cart".into(), pod: Some("pod-1".into()), namespace: Some("shop".into()) };
            assert_eq!(names, expected, "{path}");
            assert!(["cart", "pod-1", "shop/pod-1", POD].iter().all(|name| containers.is_in(&path, name)), "{path}");
        }
        let nameless = containers.names_in(&format!("/kubepods/besteffort/pod{POD}/{}", id("9"))).unwrap();
        assert_eq!((nameless.pod.as_deref(), nameless.namespace), (Some(POD), None));
    }

    #[test]
    fn a_pod_has_the_names_that_its_runtime_tells() {
        let (_root, containers) = made(&[]);
        let (id, other) = (ID.replace('0', "a"), ID.replace('0', "b"));
        let path = |id: &str| format!("/kubepods/besteffort/pod{POD}/{id}");
        assert_eq!(containers.names_in(&path(&id)).unwrap().namespace, None);
        let names =
            ContainerNames { container: "cart".into(), pod: Some("pod-1".into()), namespace: Some("shop".into()) };
        super::super::tell_containers(HashMap::from([(id.clone(), names.clone())]));
        assert_eq!(containers.names_in(&path(&id)), Some(names));
        assert!(["cart", "pod-1", "shop/pod-1", POD].iter().all(|name| containers.is_in(&path(&id), name)));
        assert!(!containers.is_in(&path(&id), "other/pod-1") && !containers.is_in(&path(&other), "cart"));
    }

    #[test]
    fn a_pod_is_found_by_its_uid() {
        let (_root, containers) = made(&[]);
        let slice = format!("/kubepods.slice/kubepods-burstable-pod{}.slice/x", POD.replace('-', "_"));
        for path in [slice, format!("/kubepods/besteffort/pod{POD}/{ID}")] {
            assert!(containers.is_in(&path, POD), "{path}");
            assert!(!containers.is_in(&path, &POD.replace('6', "7")), "{path}");
        }
    }

    #[test]
    fn a_container_is_found_by_its_name() {
        let other = ID.replace('0', "9");
        let (_root, containers) = made(&[
            (format!("var/lib/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/web"}"#.into()),
            (
                "var/lib/containers/storage/overlay-containers/containers.json".into(),
                format!(r#"[{{"id": "{other}", "names": ["cache", "c2"]}}, {{"id": "{ID}"}}]"#),
            ),
            ("var/lib/nerdctl/1935db59/names/default/proxy".into(), format!("{ID}\n")),
            (format!("var/log/containers/pod-1_shop_cart-{other}.log"), String::new()),
            ("run/containerd/io.containerd.runtime.v2.task/default/plain/config.json".into(), "{}".into()),
        ]);
        let (path, second) = (format!("/docker/{ID}"), format!("/machine.slice/libpod-{other}.scope"));
        assert!(["web", "proxy"].iter().all(|name| containers.is_in(&path, name)));
        assert!(["cache", "c2", "pod-1", "cart", "shop/pod-1"].iter().all(|name| containers.is_in(&second, name)));
        assert!(!containers.is_in(&path, "cache") && !containers.is_in(&second, "web"));
        assert!(containers.is_in("/default/plain", "plain") && containers.is_in("/default/plain/below", "plain"));
        assert!(!containers.is_in("/other/plain", "plain") && !containers.is_in("/default/web", "default"));
        assert!(containers.is_in("/lxc.payload.db/init.scope", "db"));
        assert!(containers.is_in(r"/machine.slice/machine-my\x2dbox.scope", "my-box"));
    }

    #[test]
    fn a_container_of_a_user_is_found_by_its_name_and_a_user_names_no_container_of_others() {
        let other = ID.replace('0', "9");
        let list = format!(r#"[{{"id": "{ID}", "names": ["mine"]}}, {{"id": "{other}", "names": ["theirs"]}}]"#);
        let share = "home/ann/.local/share";
        let (_root, containers) = made(&[
            ("etc/passwd".into(), "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n".into()),
            (format!("{share}/containers/storage/overlay-containers/containers.json"), list),
            (format!("{share}/docker/containers/{ID}/config.v2.json"), r#"{"Name": "/of-docker"}"#.into()),
        ]);
        let own = format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container");
        assert!(["mine", "of-docker"].iter().all(|name| containers.is_in(&own, name)));
        assert_eq!(containers.names_in(&own).unwrap().container, "of-docker");
        assert!(!containers.is_in(&format!("/machine.slice/libpod-{other}.scope"), "theirs"));
        assert!(!containers.is_in(&format!("/user.slice/user-1001.slice/libpod-{other}.scope"), "theirs"));
    }

    #[test]
    fn each_known_layout_of_cgroups_has_its_container() {
        let (_root, containers) = made(&[]);
        let (task, id) = (&ID[..32], ID.replace('0', "7"));
        // What is selected, and what the container is called; `None` for what is left out.
        for (path, wanted, called) in [
            ("/machine.slice/machine-box.scope".into(), "box", Some("box")),
            ("/machine.slice/systemd-nspawn@box1.service/payload".into(), "box1", Some("box1")),
            ("/machine.slice/systemd-nspawn@box1.service".into(), "box1", Some("box1")),
            ("/machine.slice/systemd-nspawn@box2.service/supervisor".into(), "box2", None),
            ("/lxc.payload.web".into(), "web", Some("web")),
            ("/lxc.monitor.web2".into(), "web2", None),
            ("/lxc/old".into(), "old", Some("old")),
            ("/lxc/101/ns".into(), "101", Some("101")),
            (format!("/machine.slice/libpod-payload-{ID}"), &ID[..12], Some(&ID[..12])),
            (format!("/ecs/{task}-1234567"), &ID[..12], Some(&ID[..12])),
            (format!("/ecs/{task}/{id}"), &id[..12], Some(&id[..12])),
            ("/system.slice/incus.service/lxd.qemu.vm1".into(), "vm1", Some("vm1")),
            (r"/machine.slice/machine-lxc\x2d4711\x2dbox5.scope/libvirt".into(), "box5", Some("box5")),
            (r"/machine.slice/machine-qemu\x2d3\x2dguest7.scope/libvirt".into(), "guest7", Some("guest7")),
            (r"/machine.slice/machine-qemu\x2d3\x2dguest7.scope".into(), "qemu-3-guest7", Some("guest7")),
            ("/system.slice/runc-mybox.scope".into(), "mybox", Some("mybox")),
            ("/system.slice/crun-mybox.scope".into(), "mybox", Some("mybox")),
            (format!("/user.slice/user-1.slice/runc-{ID}.scope"), &ID[..12], Some(&ID[..12])),
        ] {
            let path: String = path;
            assert_eq!(containers.is_in(&path, wanted), called.is_some(), "{wanted} in {path}");
            assert_eq!(containers.names_in(&path).map(|names| names.container), called.map(String::from), "{path}");
            assert!(!containers.is_in(&path, "another"), "{path}");
        }
    }
}
