//! From a container's CRI configuration to the OCI runtime specification. Data in, data out: what the machine has is told
//! by [`Host`], and the only file ever read is a seccomp profile that the configuration names.
//!
//! The rules are those of containerd's CRI plugin, so that a container finds the same world under either runtime.

pub mod host;
pub mod process;
pub mod user;
pub mod capabilities;
pub mod mounts;
pub mod devices;
pub mod resources;
pub mod sysctls;
pub mod seccomp;
pub mod selinux;
pub mod confinement;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cri::v1;
use cri::v1::security_profile::ProfileType;
use oci_spec::runtime::{
    Linux, LinuxBuilder, LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType, RootBuilder, Spec, SpecBuilder,
};

use crate::apparmor::DEFAULT;
use crate::image::ImageConfig;
pub use confinement::Confinement;
pub use host::Host;

/// Everything that decides how a container is set up.
pub struct Input<'a> {
    pub id: &'a str,
    pub config: &'a v1::ContainerConfig,
    pub sandbox: &'a v1::PodSandboxConfig,
    pub image: &'a ImageConfig,
    /// The mounted root file system.
    pub rootfs: PathBuf,
    /// `/etc/passwd` and `/etc/group` of the image, for names of users and groups.
    pub passwd: &'a str,
    pub group: &'a str,
    pub namespaces: &'a Namespaces,
    pub host: &'a Host,
    /// Files the runtime gives every container: path in the container, path here.
    pub resolv_conf: PathBuf,
    pub hostname_file: PathBuf,
    pub dev_shm: PathBuf,
    /// Where the machine has SELinux.
    pub labels: Option<&'a selinux::Labels>,
}

/// The pod's namespaces, as paths that `setns` takes. What is absent is the host's, or made for the container (`pid`).
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Namespaces {
    pub network: Option<PathBuf>,
    pub ipc: Option<PathBuf>,
    pub uts: Option<PathBuf>,
    pub pid: Option<PathBuf>,
    pub user: Option<PathBuf>,
}

impl Input<'_> {
    /// An absent security context means that nothing special is asked for.
    fn security(&self) -> v1::LinuxContainerSecurityContext {
        self.config.linux.as_ref().and_then(|linux| linux.security_context.clone()).unwrap_or_default()
    }
}

pub fn spec(input: &Input) -> cri::Result<Spec> {
    let security = input.security();
    let process = process::process(input, &security)?;
    let root = RootBuilder::default().path(&input.rootfs).readonly(security.readonly_rootfs).build();
    let mut spec = SpecBuilder::default()
        .version("1.2.0")
        .process(process)
        .root(root.map_err(build)?)
        .mounts(mounts::mounts(input, &security)?)
        .annotations(annotations(input))
        .linux(linux(input, &security)?)
        .build()
        .map_err(build)?;
    // The pod's UTS namespace has the name already, and the library's default must not stand in the way of the host's.
    spec.set_hostname(None);
    selinux::set(&mut spec, input.labels);
    Ok(spec)
}

/// The cgroup of a container, below its pod's.
pub fn cgroups_path(sandbox: &v1::PodSandboxConfig, id: &str) -> PathBuf {
    let parent = sandbox.linux.as_ref().map(|linux| linux.cgroup_parent.as_str()).unwrap_or_default();
    let parent = if parent.is_empty() { "/knarr" } else { parent };
    Path::new("/").join(parent.trim_start_matches('/')).join(id)
}

fn linux(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Linux> {
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces(input, security)?)
        .cgroups_path(cgroups_path(input.sandbox, input.id))
        .resources(resources::resources(input, security)?)
        .devices(devices::devices(input, security)?)
        .build()
        .map_err(build)?;
    // Upstream hides nothing from privileged containers; for the others the configuration lists what is hidden, and an
    // empty list is `procMount: Unmasked`.
    let hidden = |paths: &Vec<String>| if security.privileged { Vec::new() } else { paths.clone() };
    linux.set_masked_paths(Some(hidden(&security.masked_paths)));
    linux.set_readonly_paths(Some(hidden(&security.readonly_paths)));
    linux.set_rootfs_propagation(Some(mounts::rootfs_propagation(input.config).to_owned()));
    if !security.privileged {
        let process_capabilities = capabilities::capabilities(security, input.host)?;
        linux.set_seccomp(seccomp::profile(security.seccomp.as_ref(), &process_capabilities)?);
    }
    if input.namespaces.user.is_none()
        && let Some(mapping) = user_namespace(security)
    {
        linux.set_uid_mappings(Some(id_mappings(&mapping.uids)?));
        linux.set_gid_mappings(Some(id_mappings(&mapping.gids)?));
    }
    Ok(linux)
}

fn namespaces(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Vec<LinuxNamespace>> {
    let mut namespaces = vec![namespace(LinuxNamespaceType::Mount, None)?];
    let pod = input.namespaces;
    let joined = [
        (LinuxNamespaceType::Network, &pod.network),
        (LinuxNamespaceType::Ipc, &pod.ipc),
        (LinuxNamespaceType::Uts, &pod.uts),
        (LinuxNamespaceType::User, &pod.user),
    ];
    for (kind, path) in joined {
        if let Some(path) = path {
            namespaces.push(namespace(kind, Some(path))?);
        }
    }
    if pod.user.is_none() && user_namespace(security).is_some() {
        namespaces.push(namespace(LinuxNamespaceType::User, None)?);
    }
    let pid_mode = security.namespace_options.as_ref().map(v1::NamespaceOption::pid);
    match pid_mode.unwrap_or(v1::NamespaceMode::Container) {
        v1::NamespaceMode::Node => {}
        v1::NamespaceMode::Container => namespaces.push(namespace(LinuxNamespaceType::Pid, None)?),
        v1::NamespaceMode::Pod | v1::NamespaceMode::Target => {
            namespaces.push(namespace(LinuxNamespaceType::Pid, pod.pid.as_deref())?);
        }
    }
    // On v1 the container sees its own groups through bind mounts instead, as upstream does.
    if input.host.cgroup == linux::cgroup::Hierarchy::V2 && !security.privileged {
        namespaces.push(namespace(LinuxNamespaceType::Cgroup, None)?);
    }
    Ok(namespaces)
}

fn namespace(kind: LinuxNamespaceType, path: Option<&Path>) -> cri::Result<LinuxNamespace> {
    let builder = LinuxNamespaceBuilder::default().typ(kind);
    match path {
        Some(path) => builder.path(path),
        None => builder,
    }
    .build()
    .map_err(build)
}

/// The mappings of a pod with `hostUsers: false`.
fn user_namespace(security: &v1::LinuxContainerSecurityContext) -> Option<&v1::UserNamespace> {
    let options = security.namespace_options.as_ref()?.userns_options.as_ref()?;
    (options.mode() == v1::NamespaceMode::Pod).then_some(options)
}

fn id_mappings(mappings: &[v1::IdMapping]) -> cri::Result<Vec<LinuxIdMapping>> {
    let mapping = |mapping: &v1::IdMapping| {
        LinuxIdMappingBuilder::default()
            .host_id(mapping.host_id)
            .container_id(mapping.container_id)
            .size(mapping.length)
            .build()
            .map_err(build)
    };
    mappings.iter().map(mapping).collect()
}

/// The names under which tools that read containerd's annotations look.
fn annotations(input: &Input) -> HashMap<String, String> {
    let mut annotations = HashMap::new();
    annotations.insert("io.kubernetes.cri.container-type".to_owned(), "container".to_owned());
    if let Some(metadata) = &input.config.metadata {
        annotations.insert("io.kubernetes.cri.container-name".to_owned(), metadata.name.clone());
    }
    if let Some(image) = &input.config.image {
        let name = if image.user_specified_image.is_empty() { &image.image } else { &image.user_specified_image };
        annotations.insert("io.kubernetes.cri.image-name".to_owned(), name.clone());
    }
    if let Some(metadata) = &input.sandbox.metadata {
        annotations.insert("io.kubernetes.cri.sandbox-name".to_owned(), metadata.name.clone());
        annotations.insert("io.kubernetes.cri.sandbox-namespace".to_owned(), metadata.namespace.clone());
        annotations.insert("io.kubernetes.cri.sandbox-uid".to_owned(), metadata.uid.clone());
    }
    annotations
}

/// The profile's name for `process.apparmorProfile`, if one is to be applied.
fn apparmor_profile(security: &v1::LinuxContainerSecurityContext, host: &Host) -> cri::Result<Option<String>> {
    let loaded = |name: &str| host.apparmor_profiles.iter().any(|loaded| loaded == name);
    let asked = security.apparmor.as_ref();
    // Who asks for nothing gets the default where there is one.
    match asked.map_or(ProfileType::RuntimeDefault, v1::SecurityProfile::profile_type) {
        ProfileType::Unconfined => Ok(None),
        ProfileType::RuntimeDefault if security.privileged => Ok(None),
        ProfileType::RuntimeDefault if host.apparmor && loaded(DEFAULT) => Ok(Some(DEFAULT.to_owned())),
        ProfileType::RuntimeDefault if asked.is_none() => Ok(None),
        ProfileType::RuntimeDefault => Err(invalid(format!("apparmor is not supported: {DEFAULT} is not loaded"))),
        ProfileType::Localhost => {
            let name = asked.map(|asked| asked.localhost_ref.as_str()).unwrap_or_default();
            let name = name.trim_start_matches("localhost/");
            if !host.apparmor {
                return Err(invalid("apparmor is not enabled on this machine"));
            }
            if !loaded(name) {
                return Err(invalid(format!("apparmor profile not found {name}")));
            }
            Ok(Some(name.to_owned()))
        }
    }
}

fn build(error: oci_spec::OciSpecError) -> cri::Error {
    cri::Error::unknown(format!("failed to generate spec: {error}"))
}

fn invalid(message: impl Into<String>) -> cri::Error {
    cri::Error::new(cri::Code::InvalidArgument, message)
}
