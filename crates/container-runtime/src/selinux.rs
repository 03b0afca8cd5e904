//! SELinux labels of pods and containers, by the rules of containerd's CRI plugin, where the machine has SELinux and its policy
//! knows containers. Elsewhere nothing is labelled and only the form of what is asked for is looked at.

use std::path::PathBuf;

use cri::v1;
use linux::selinux::{Contexts, Label, Levels, Options};
use rand::RngCore;
use serde::{Deserialize, Serialize};

use crate::runtime::Inner;
use crate::sandbox::Sandbox;
use crate::spec::selinux::Labels;

/// The labels of a pod, which stay its own as long as it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PodLabels {
    pub process: String,
    pub mount: String,
}

impl PodLabels {
    pub fn level(&self) -> Option<String> {
        Label::parse(&self.process).and_then(|label| label.level)
    }
}

/// Labels a new pod. Its level is taken until it is released.
pub(crate) fn of_sandbox(inner: &Inner, config: &v1::PodSandboxConfig) -> cri::Result<Option<PodLabels>> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.as_ref());
    let asked = options(security.and_then(|security| security.selinux_options.as_ref()))?;
    let Some(contexts) = &inner.host.selinux else { return Ok(None) };
    label_pod(contexts, &asked, &mut inner.levels.lock(), rand::rng().next_u32()).map(Some)
}

fn label_pod(contexts: &Contexts, asked: &Options, levels: &mut Levels, random: u32) -> cri::Result<PodLabels> {
    let level = if asked.level.is_empty() {
        let free = levels.take_free(random);
        free.ok_or_else(|| cri::Error::unknown("every SELinux level is taken by another sandbox"))?
    } else {
        // Whoever names a level may share it on purpose.
        levels.take(&asked.level);
        asked.level.clone()
    };
    let (process, mount) = contexts.labels(asked, &level);
    Ok(PodLabels { process: process.to_string(), mount: mount.to_string() })
}

/// The labels of a container: its own wishes, else those of its pod. One that names no level has its pod's, so that the containers of a
/// pod can share volumes.
fn of_container(
    contexts: Option<&Contexts>,
    pod: Option<&PodLabels>,
    security: &v1::LinuxContainerSecurityContext,
) -> cri::Result<Option<Labels>> {
    let asked = options(security.selinux_options.as_ref())?;
    // A pod without labels was made before there were any, and its containers are all alike.
    let (Some(contexts), Some(pod)) = (contexts, pod) else { return Ok(None) };
    let (process, mount) = if asked.is_empty() {
        (pod.process.clone(), pod.mount.clone())
    } else {
        let (process, mount) = contexts.labels(&asked, &pod.level().unwrap_or_default());
        (process.to_string(), mount.to_string())
    };
    Ok(Some(Labels { process: (!security.privileged).then_some(process), mount }))
}

/// What is asked for, if it has the form of a level. Whether the policy knows the rest, the kernel says when the container starts.
fn options(asked: Option<&v1::SeLinuxOption>) -> cri::Result<Options> {
    let Some(asked) = asked else { return Ok(Options::default()) };
    if !asked.level.is_empty() && !linux::selinux::is_level(&asked.level) {
        return Err(cri::Error::unknown(format!("the format of 'level' {:?} is not correct", asked.level)));
    }
    let v1::SeLinuxOption { user, role, r#type, level } = asked.clone();
    Ok(Options { user, role, kind: r#type, level })
}

/// The labels of a container that is being made. Its volumes, and the files that the runtime gives it, are labelled as it is.
pub(crate) async fn prepare(
    inner: &Inner,
    sandbox: &Sandbox,
    config: &v1::ContainerConfig,
) -> cri::Result<Option<Labels>> {
    let security = config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default();
    let pod = sandbox.record.lock().selinux.clone();
    let labels = of_container(inner.host.selinux.as_ref(), pod.as_ref(), &security)?;
    let Some(label) = labels.as_ref().map(|labels| labels.mount.clone()) else { return Ok(None) };
    let volumes = config.mounts.iter().filter(|mount| mount.selinux_relabel && !mount.host_path.is_empty());
    let mut paths: Vec<PathBuf> = volumes.map(|mount| PathBuf::from(&mount.host_path)).collect();
    paths.extend([sandbox.folder.hostname(), sandbox.folder.resolv_conf()]);
    let relabelled = tokio::task::spawn_blocking(move || -> cri::Result<()> {
        for path in paths {
            linux::selinux::relabel(&path, &label).map_err(|error| {
                cri::Error::unknown(format!("relabel {:?} with {label:?} failed: {error}", path.display().to_string()))
            })?;
        }
        Ok(())
    });
    relabelled.await.map_err(|error| cri::Error::unknown(error.to_string()))??;
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts() -> Contexts {
        let policy = "process=system_u:system_r:container_t:s0\nfile=system_u:object_r:container_file_t:s0\n";
        Contexts::parse(policy).unwrap()
    }

    fn security(kind: &str, level: &str, privileged: bool) -> v1::LinuxContainerSecurityContext {
        let asked = v1::SeLinuxOption { r#type: kind.to_owned(), level: level.to_owned(), ..Default::default() };
        v1::LinuxContainerSecurityContext { selinux_options: Some(asked), privileged, ..Default::default() }
    }

    #[test]
    fn pods_have_levels_of_their_own_unless_they_name_one() {
        let mut levels = Levels::default();
        let mut pod = |level: &str| {
            let asked = Options { level: level.to_owned(), ..Options::default() };
            label_pod(&contexts(), &asked, &mut levels, 4).unwrap()
        };
        let first = pod("");
        assert_eq!(first.process, "system_u:system_r:container_t:s0:c0,c5");
        assert_eq!(first.mount, "system_u:object_r:container_file_t:s0:c0,c5");
        assert_eq!(pod("").level().as_deref(), Some("s0:c0,c6"));
        assert_eq!(pod("s0:c0,c7").level(), pod("s0:c0,c7").level());
        assert_eq!(pod("").level().as_deref(), Some("s0:c0,c8"));
    }

    #[test]
    fn a_container_is_labelled_as_its_pod_where_it_asks_for_nothing_else() {
        let process = "system_u:system_r:container_t:s0:c1,c2".to_owned();
        let pod = PodLabels { process, mount: "system_u:object_r:container_file_t:s0:c1,c2".to_owned() };
        let check = |security, process: Option<&str>, mount: &str| {
            let made = of_container(Some(&contexts()), Some(&pod), &security).unwrap().unwrap();
            assert_eq!((made.process.as_deref(), made.mount.as_str()), (process, mount));
        };
        let own = "system_u:object_r:container_file_t:s0:c1,c2";
        check(v1::LinuxContainerSecurityContext::default(), Some(&pod.process), own);
        check(security("", "", false), Some(&pod.process), own);
        check(security("net_t", "", false), Some("system_u:system_r:net_t:s0:c1,c2"), own);
        let other = "system_u:object_r:container_file_t:s0:c8,c9";
        check(security("", "s0:c8,c9", false), Some("system_u:system_r:container_t:s0:c8,c9"), other);
        check(security("", "", true), None, own);
    }

    #[test]
    fn without_selinux_only_the_form_of_a_level_counts() {
        assert_eq!(of_container(None, None, &security("any_t", "s0:c1", false)).unwrap(), None);
        let error = of_container(None, None, &security("", "s0,c1,c2", false)).unwrap_err();
        assert_eq!(error.message, "the format of 'level' \"s0,c1,c2\" is not correct");
    }
}
