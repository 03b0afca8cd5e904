//! The process of a container: arguments, environment, working directory, identity and rights of its first process.

use cri::v1;
use oci_spec::runtime::{Capabilities, LinuxCapabilitiesBuilder, Process, ProcessBuilder};

use super::{Input, apparmor_profile, build, capabilities, invalid, user};
use crate::image::ImageConfig;

/// What programs find when neither image nor pod says otherwise.
pub(crate) const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn process(input: &Input, security: &v1::LinuxContainerSecurityContext) -> cri::Result<Process> {
    let capabilities = capabilities::capabilities(security, input.host)?;
    let mut process = ProcessBuilder::default()
        .terminal(input.config.tty)
        .args(arguments(input.config, input.image)?)
        .env(environment(input))
        .cwd(working_dir(input.config, input.image))
        .user(user::user(security, &input.image.user, input.passwd, input.group)?)
        .capabilities(
            LinuxCapabilitiesBuilder::default()
                .bounding(capabilities.clone())
                .effective(capabilities.clone())
                .permitted(capabilities)
                .inheritable(Capabilities::new())
                .ambient(capabilities::ambient(security, input.host)?)
                .build()
                .map_err(build)?,
        )
        .build()
        .map_err(build)?;
    // Absent, not false: libcontainer takes any value as "set" when it decides whether the filter can be loaded late.
    process.set_no_new_privileges(security.no_new_privs.then_some(true));
    // The library's default of 1024 open files is not Kubernetes': containers inherit what the node has.
    process.set_rlimits(None);
    process.set_apparmor_profile(apparmor_profile(security, input.host)?);
    let resources = input.config.linux.as_ref().and_then(|linux| linux.resources.as_ref());
    if let Some(resources) = resources {
        process.set_oom_score_adj(Some(oom_score_adj(resources.oom_score_adj, input.host.oom_score_adj_min)));
    }
    Ok(process)
}

/// Command and arguments of the pod win over entrypoint and command of the image, each as Kubernetes documents it: a
/// command without arguments also silences the image's.
fn arguments(config: &v1::ContainerConfig, image: &ImageConfig) -> cri::Result<Vec<String>> {
    let mut arguments = config.command.clone();
    if config.command.is_empty() {
        arguments.extend(image.entrypoint.iter().cloned());
        let rest = if config.args.is_empty() { &image.cmd } else { &config.args };
        arguments.extend(rest.iter().cloned());
    } else {
        arguments.extend(config.args.iter().cloned());
    }
    if arguments.is_empty() {
        return Err(invalid("no command specified"));
    }
    Ok(arguments)
}

fn environment(input: &Input) -> Vec<String> {
    let mut environment = vec![DEFAULT_PATH.to_owned()];
    if input.config.tty {
        environment.push("TERM=xterm".to_owned());
    }
    let hostname = if input.sandbox.hostname.is_empty() { &input.host.hostname } else { &input.sandbox.hostname };
    environment.push(format!("HOSTNAME={hostname}"));
    for variable in &input.image.env {
        set(&mut environment, variable.clone());
    }
    for variable in &input.config.envs {
        set(&mut environment, format!("{}={}", variable.key, variable.value));
    }
    environment
}

/// Replaces a variable where it stands, or adds it.
fn set(environment: &mut Vec<String>, variable: String) {
    let name = variable.split('=').next().unwrap_or_default().to_owned();
    let same = |other: &String| other.split('=').next() == Some(name.as_str());
    match environment.iter_mut().find(|other| same(other)) {
        Some(place) => *place = variable,
        None => environment.push(variable),
    }
}

/// Where the process starts. It may be missing in the image: the runtime creates it, see [`super::mounts::place_of`].
pub fn working_dir(config: &v1::ContainerConfig, image: &ImageConfig) -> String {
    let chosen = [&config.working_dir, &image.working_dir].into_iter().find(|path| !path.is_empty());
    match chosen {
        Some(path) if path.starts_with('/') => path.clone(),
        Some(path) => format!("/{path}"),
        None => "/".to_owned(),
    }
}

/// Without the right to lower it (CAP_SYS_RESOURCE) a process keeps at least what it has; the container then starts with
/// less protection instead of not at all.
fn oom_score_adj(wanted: i64, minimum: i32) -> i32 {
    wanted.clamp(i64::from(minimum), 1000) as i32
}
