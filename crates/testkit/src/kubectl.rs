//! Real kubectl: Debian's old one, and a newer one: that of the machine, or of Debian's next release.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::Context;

#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    home: PathBuf,
    /// The network namespace it runs in, when it is not ours.
    network: Option<PathBuf>,
}

/// Every kubectl on this machine: the one `make tools` unpacked from Debian's package, and the one on the PATH or, where there
/// is none, the newer one that it unpacked.
pub fn programs() -> Vec<PathBuf> {
    let tool = |name: &str| tools_dir().map(|folder| folder.join(name)).filter(|path| path.is_file());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|path| path.is_file());
    tool("kubectl-debian").into_iter().chain(own.or_else(|| tool("kubectl-newer"))).collect()
}

/// Is this the one from Debian's package, which is a dozen versions older?
pub fn is_debians(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "kubectl-debian")
}

/// What `make tools` installed for the tests.
pub fn tools_dir() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    test.ancestors().map(|folder| folder.join("tools")).find(|folder| folder.is_dir())
}

impl Kubectl {
    pub fn new(program: &Path, kubeconfig: &Path) -> Kubectl {
        // Discovery is cached below HOME: one cache per server, or servers would be mistaken for each other.
        let home = kubeconfig.parent().unwrap_or(Path::new("/")).join("kubectl-home");
        Kubectl { program: program.into(), kubeconfig: kubeconfig.into(), home, network: None }
    }

    pub fn within(mut self, network: Option<PathBuf>) -> Kubectl {
        self.network = network;
        self
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.network {
            None => Command::new(&self.program),
            Some(network) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", network.display())).arg("--").arg(&self.program);
                command
            }
        };
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", &self.home)
            .env_remove("KUBERNETES_MASTER");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.command(arguments).stdin(Stdio::null()).output().with_context(|| format!("run kubectl {arguments:?}"))
    }

    /// Runs with that text as standard input.
    pub fn run_with(&self, arguments: &[&str], input: &str) -> anyhow::Result<Output> {
        use std::io::Write;
        let mut child =
            self.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("kubectl's input")?.write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    /// What it prints when it succeeds; panics with what it said otherwise.
    pub fn ok(&self, arguments: &[&str]) -> String {
        checked(arguments, self.run(arguments))
    }

    pub fn ok_with(&self, arguments: &[&str], input: &str) -> String {
        checked(arguments, self.run_with(arguments, input))
    }

    /// What it complains of when it fails; panics where it succeeds.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).expect("kubectl runs");
        assert!(
            !output.status.success(),
            "kubectl {arguments:?} succeeded: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn fails_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.run_with(arguments, input).expect("kubectl runs");
        assert!(
            !output.status.success(),
            "kubectl {arguments:?} succeeded: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn checked(arguments: &[&str], output: anyhow::Result<Output>) -> String {
    let output = output.expect("kubectl runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "kubectl {arguments:?} failed: {stderr}\n{stdout}");
    stdout.into_owned()
}
