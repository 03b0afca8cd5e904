//! The last steps before a container's program runs, which libcontainer 0.7 does not do as Kubernetes needs them: the
//! propagation of single mounts, a filter that was compiled before, and a filter for commands in a running container.
//!
//! A custom executor calls [`Confinement::prepare`] in `validate` and [`Confinement::seal`] in `exec`, for the container's
//! first process; for commands that enter later, [`Confinement::enter`] and [`Confinement::seal`].

use std::io;
use std::path::PathBuf;

use linux::capabilities::Sets;
use linux::cgroup::{DeviceRule, Group, Hierarchy};
use linux::seccomp::Program;
use nix::mount::MsFlags;
use oci_spec::runtime::{Capabilities, Spec};

use super::devices;
use super::host::NUMBERED;
use super::seccomp::Programs;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Confinement {
    pub filter: Option<Program>,
    pub no_new_privileges: bool,
    pub capabilities: Option<Sets>,
    /// Which devices its cgroup may use.
    pub devices: Vec<DeviceRule>,
    /// Mounts that must not be as the root's propagation made them.
    pub mounts: Vec<(PathBuf, Propagation)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Propagation {
    Private,
    Slave,
}

impl Confinement {
    /// Takes filter and capabilities out of a specification, so that libcontainer leaves both to the executor. A filter can
    /// be installed only before the capabilities are dropped, unless new privileges are forbidden.
    pub fn take(spec: &mut Spec, programs: &Programs) -> cri::Result<Confinement> {
        let mut confinement =
            Confinement { devices: devices::group_rules(spec), mounts: mounts(spec), ..Confinement::default() };
        if let Some(linux) = spec.linux_mut()
            && let Some(profile) = linux.seccomp()
        {
            confinement.filter = Some((*programs.get(profile)?).clone());
            linux.set_seccomp(None);
        }
        if let Some(process) = spec.process_mut() {
            confinement.no_new_privileges = process.no_new_privileges() == Some(true);
            confinement.capabilities = process.capabilities().as_ref().map(|sets| Sets {
                bounding: mask(sets.bounding()),
                effective: mask(sets.effective()),
                permitted: mask(sets.permitted()),
                inheritable: mask(sets.inheritable()),
                ambient: mask(sets.ambient()),
            });
            process.set_capabilities(None);
        }
        Ok(confinement)
    }

    /// Outside the container, between its creation and its start. On v1 libcontainer has written the same rules; on v2, as
    /// it is built here, it would leave all devices open.
    pub fn restrict(&self, group: &Group) -> Result<(), linux::cgroup::Error> {
        match group.hierarchy() {
            Hierarchy::V1 => Ok(()),
            Hierarchy::V2 => group.restrict_devices(&self.devices),
        }
    }

    /// Inside the container's namespaces and root, still with all power.
    pub fn prepare(&self) -> io::Result<()> {
        for (path, propagation) in &self.mounts {
            let flags = match propagation {
                Propagation::Private => MsFlags::MS_PRIVATE,
                Propagation::Slave => MsFlags::MS_SLAVE,
            };
            nix::mount::mount(None::<&str>, path, None::<&str>, flags | MsFlags::MS_REC, None::<&str>)?;
        }
        self.enter()
    }

    /// The same for a command in a running container, whose mounts are done.
    pub fn enter(&self) -> io::Result<()> {
        if !self.no_new_privileges {
            self.install()?;
        }
        match &self.capabilities {
            Some(sets) => linux::capabilities::apply(sets),
            None => Ok(()),
        }
    }

    /// Right before the program is executed.
    pub fn seal(&self) -> io::Result<()> {
        if self.no_new_privileges { self.install() } else { Ok(()) }
    }

    fn install(&self) -> io::Result<()> {
        self.filter.as_ref().map_or(Ok(()), linux::seccomp::install)
    }
}

fn mask(capabilities: &Option<Capabilities>) -> u64 {
    let has = |number: usize| capabilities.as_ref().is_some_and(|set| set.contains(&NUMBERED[number]));
    (0..NUMBERED.len()).filter(|number| has(*number)).map(|number| 1 << number).sum()
}

/// What differs from the propagation that all mounts of the container's namespace begin with.
fn mounts(spec: &Spec) -> Vec<(PathBuf, Propagation)> {
    let begin = spec.linux().as_ref().and_then(|linux| linux.rootfs_propagation().clone()).unwrap_or_default();
    let mut found = Vec::new();
    for mount in spec.mounts().iter().flatten() {
        let asks = |word: &str| mount.options().iter().flatten().any(|option| option == word);
        let wanted = if asks("rprivate") {
            Some(Propagation::Private)
        } else if asks("rslave") {
            Some(Propagation::Slave)
        } else {
            None
        };
        match (begin.as_str(), wanted) {
            ("private", _) | (_, None) | ("slave", Some(Propagation::Slave)) => {}
            (_, Some(wanted)) => found.push((mount.destination().clone(), wanted)),
        }
    }
    found
}
