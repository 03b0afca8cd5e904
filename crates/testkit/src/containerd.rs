//! Debian's containerd on a machine, with folders, socket and pod network of its own. It ends with the machine.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::Machine;

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The process that waits for it outside.
pub struct Containerd(Child);

impl Drop for Containerd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it and imports an image from an archive, which is its pause image, too: it needs no registry.
pub fn start(machine: &Machine, root: &Path, archive: &[u8], image: &str) -> anyhow::Result<Containerd> {
    std::fs::create_dir(root.join("cni"))?;
    std::fs::write(root.join("cni/10-test.conflist"), network(root))?;
    std::fs::write(root.join("config.toml"), configuration(root, image))?;
    std::fs::write(root.join("image.tar"), archive)?;
    let log = std::fs::File::create(root.join("log"))?;
    let mut command = machine.command("containerd");
    command.arg("--config").arg(root.join("config.toml")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let containerd = Containerd(command.spawn()?);
    let folder = root.display();
    let import = format!(
        "ctr --address {folder}/containerd.sock -n k8s.io images import --snapshotter native {folder}/image.tar"
    );
    let until = Instant::now() + START_TIMEOUT;
    while let Err(error) = machine.shell(&import) {
        if Instant::now() > until {
            bail!("{error}\n{}", std::fs::read_to_string(root.join("log")).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(containerd)
}

pub fn endpoint(root: &Path) -> String {
    format!("unix://{}/containerd.sock", root.display())
}

fn configuration(root: &Path, image: &str) -> String {
    let root = root.display();
    format!(
        r#"version = 2
root = "{root}/root"
state = "{root}/state"
disabled_plugins = ["io.containerd.internal.v1.restart", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{root}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{root}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#
    )
}

fn network(root: &Path) -> String {
    serde_json::json!({
        "cniVersion": "1.0.0", "name": "test",
        "plugins": [{
            "type": "bridge", "bridge": "test0", "isGateway": true,
            "ipam": {
                "type": "host-local", "dataDir": root.join("addresses"),
                "ranges": [[{"subnet": "10.99.0.0/24"}]],
            },
        }],
    })
    .to_string()
}
