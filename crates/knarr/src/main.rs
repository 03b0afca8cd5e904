//! knarr: all of Kubernetes in one program. Reads flags, picks components, starts and stops them.

mod admission;
mod configuration;
mod agent;
mod api_flags;
mod identity;
mod check;
mod etcd;
mod join;
mod server;
mod options;
mod disable;
mod roles;
mod manifests;
mod control;
mod counting;
mod controllers;
mod scheduler;
mod local_storage;
mod metrics;
mod alone;
mod accounts;
mod leader;
mod memory;
mod health;
mod secure;
mod shown;
mod keys;
mod upstream;
mod component_config;
mod api_server;
mod kubelet;
mod cloud;
mod tuning;
mod node;
mod network;
mod parts;
mod dns;
mod kube_proxy;
mod ingress;
mod dashboard;
mod power_off;
mod hollow_nodes;
mod snapshot;
mod secrets_encrypt;
mod token;
mod oidc_login;
mod hide;
mod image;
mod cluster;
mod install;
mod texts;
mod tls;
mod notify;
mod progress;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

// musl's own allocator is several times slower, and others keep memory that was freed.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Parser)]
#[command(name = "knarr", version, about = "Kubernetes in one small program")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a server: the control plane of a cluster, and a node.
    Server(Box<server::Flags>),
    /// Join this machine to a cluster as a node.
    Agent(Box<agent::Flags>),
    /// Check whether this host can run a server or a node, and say how to install what is missing.
    Check(check::Flags),
    /// Install knarr as a service of this machine and start it. Run it again with other flags to change the service.
    Install(Box<install::Flags>),
    /// Uninstall the service with all pods and data of this machine.
    Uninstall(install::UninstallFlags),
    /// Manage the tokens with which machines join.
    #[command(subcommand)]
    Token(token::Command),
    /// Sign in to a cluster with OpenID Connect, as an exec plugin of kubectl: prints a credential with a token.
    #[command(name = "oidc-login")]
    OidcLogin(oidc_login::Flags),
    /// Run only the API server, on an etcd.
    #[command(name = "kube-apiserver")]
    KubeApiserver(Box<api_server::Flags>),
    /// Run only the kubelet, against any Kubernetes API.
    Kubelet(Box<kubelet::Flags>),
    /// Run only the controllers, against any Kubernetes API.
    #[command(name = "kube-controller-manager")]
    KubeControllerManager(Box<controllers::Flags>),
    /// Run only the scheduler, against any Kubernetes API.
    #[command(name = "kube-scheduler")]
    KubeScheduler(Box<scheduler::Flags>),
    /// Run only the cloud controllers, against any Kubernetes API.
    #[command(name = "cloud-controller-manager")]
    CloudControllerManager(Box<cloud::Flags>),
    /// Run only the DNS server of one node, against any Kubernetes API.
    Dns(dns::Flags),
    /// Run only the Service proxy, against any Kubernetes API.
    #[command(name = "kube-proxy")]
    KubeProxy(Box<kube_proxy::Flags>),
    /// Run only the ingress controller, against any Kubernetes API.
    Ingress(ingress::AloneFlags),
    /// Run only the dashboard, against any Kubernetes API, or open that of a server.
    Dashboard(dashboard::Flags),
    /// End all pods of this machine before it shuts down.
    PowerOff(power_off::Flags),
    /// Simulate many nodes without containers, against any Kubernetes API, to test at scale.
    #[command(name = "hollow-nodes")]
    HollowNodes(hollow_nodes::Flags),
    /// Save, list or restore snapshots of the cluster's store.
    #[command(subcommand)]
    Snapshot(snapshot::Command),
    /// Encrypt Secrets in the store of a server, and rotate the key. The server keeps running.
    #[command(name = "secrets-encrypt", subcommand)]
    SecretsEncrypt(secrets_encrypt::Command),
    /// Manage the etcd members of the servers (--cluster-init).
    #[command(subcommand)]
    Etcd(etcd::command::Command),
    /// Manage the images of this machine. The server may be running.
    #[command(subcommand)]
    Image(image::Command),
    /// Run a cluster of several nodes on this machine, each in its own namespaces. Needs root.
    Cluster(cluster::Flags),
    /// Print a script for shell completion.
    Completion(texts::Completion),
    /// Print the manual page of a command.
    Man(texts::Man),
    /// Control a cluster; the same as calling this program by the name kubectl.
    #[command(disable_help_flag = true)]
    Kubectl {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        line: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:?}");
            check::exit_code(&error).into()
        }
    }
}

fn run() -> anyhow::Result<()> {
    // Called as kubectl, or told to be it, we are nothing else: no log, no threads, nothing that takes time.
    if let Some(line) = kubectl_line() {
        std::process::exit(kubectl::main(line));
    }
    // A pod's shim is this same program, and so is the first process of a machine; they must not have started a thread yet.
    let mut arguments = std::env::args_os();
    match arguments.nth(1) {
        Some(first) if first == "shim" => container_runtime::shim::main(arguments),
        Some(first) if first == cluster::MACHINE => cluster::become_machine(arguments),
        _ => {}
    }
    let sifted = upstream::sift(std::env::args_os())?;
    if sifted.version {
        // What kubeadm and others look for.
        println!("Kubernetes {}", kube_apiserver::VERSION);
        return Ok(());
    }
    let program = configuration::command(Arguments::command());
    let matches = configuration::matches(program.clone(), sifted.arguments);
    let mut arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    arguments.command.show(&shown::Shown::new(&program, &matches, &sifted.taken));
    // Commands that show their own progress log only what went wrong.
    // The netlink library warns of every link that is not there, which is what one asks it to find out.
    let level = if shows_progress(&arguments.command) { "error" } else { upstream::log_level(sifted.verbosity) };
    let filter = tracing_subscriber::EnvFilter::try_from_env("KNARR_LOG").unwrap_or_else(|_| level.into());
    // A log that cannot be written, say because the disk is full, is no reason to panic in whoever had something to say.
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal());
    log.log_internal_errors(false).init();
    hide::secrets();
    // Every TLS connection of the process uses the one provider that is compiled in.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match arguments.command {
        Command::Server(flags) => server::run(*flags),
        Command::Agent(flags) => agent::run(*flags),
        Command::Check(flags) => check::run(flags),
        Command::Install(flags) => {
            let given = matches.subcommand_matches("install").expect("this command was given");
            install::run(*flags, given)
        }
        Command::Uninstall(flags) => install::uninstall(flags),
        Command::Completion(flags) => texts::completion(flags),
        Command::Man(flags) => texts::man(flags),
        Command::Token(command) => token::run(command),
        Command::OidcLogin(flags) => oidc_login::run(flags),
        Command::KubeControllerManager(flags) => controllers::run(*flags),
        Command::KubeApiserver(flags) => api_server::run(*flags),
        Command::Kubelet(flags) => kubelet::run(*flags),
        Command::KubeScheduler(flags) => scheduler::run(*flags),
        Command::CloudControllerManager(flags) => cloud::run(*flags),
        Command::Dns(flags) => dns::run(flags),
        Command::KubeProxy(flags) => kube_proxy::run(*flags),
        Command::Ingress(flags) => ingress::run(flags),
        Command::Dashboard(flags) => dashboard::run(flags),
        Command::PowerOff(flags) => power_off::run(flags),
        Command::HollowNodes(flags) => hollow_nodes::run(flags),
        Command::Snapshot(command) => snapshot::run(command),
        Command::SecretsEncrypt(command) => secrets_encrypt::run(command),
        Command::Etcd(command) => etcd::command::run(command),
        Command::Image(command) => image::run(command),
        Command::Cluster(flags) => cluster::run(flags),
        // Reached only where options of knarr itself stood before it.
        Command::Kubectl { line } => std::process::exit(kubectl::main(line)),
    }
}

impl Command {
    /// Tells components what their `/flagz` shows.
    fn show(&mut self, shown: &shown::Shown) {
        match self {
            Command::Server(flags) => flags.show(shown),
            Command::Agent(flags) => flags.show(shown),
            Command::KubeApiserver(flags) => flags.shown = shown.all(),
            Command::Kubelet(flags) => flags.shown = shown.all(),
            Command::KubeControllerManager(flags) => flags.secure.shown = shown.all(),
            Command::KubeScheduler(flags) => flags.secure.shown = shown.all(),
            Command::CloudControllerManager(flags) => flags.secure.shown = shown.all(),
            Command::KubeProxy(flags) => flags.options.shown = shown.all(),
            _ => {}
        }
    }
}

fn shows_progress(command: &Command) -> bool {
    use Command::{Cluster, Etcd, Image, Install, SecretsEncrypt, Snapshot, Token, Uninstall};
    matches!(
        command,
        Image(_) | Token(_) | Cluster(_) | Etcd(_) | Install(_) | Uninstall(_) | Snapshot(_) | SecretsEncrypt(_)
    )
}

/// The arguments of kubectl, where this is a call of it: by the program's name, or by the first argument.
fn kubectl_line() -> Option<Vec<String>> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    let by_name = std::path::Path::new(&program).file_name().is_some_and(|name| name == "kubectl");
    if !by_name && arguments.next()? != "kubectl" {
        return None;
    }
    Some(arguments.map(|argument| argument.to_string_lossy().into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_of_all_commands_fit_together() {
        crate::configuration::command(super::Arguments::command()).debug_assert();
    }
}
