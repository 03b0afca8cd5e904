//! A cluster put together as kubeadm does it: certificates by openssl, a real etcd, and every part a process of its own with
//! a kubeconfig that holds nothing but a client certificate. All of it on one machine.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::machine::Inside;
use testkit::{Kubectl, Machine};

pub const PATIENCE: Duration = Duration::from_secs(90);
pub const NODE: &str = "node-1";
pub const PODS: &str = "10.244.0.0/16";
pub const SERVICES: &str = "10.96.0.0/16";

/// The parts in the order in which they start, and are killed.
pub const PARTS: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy"];

/// Keys are of the forms that kubeadm and openssl write: RSA in PKCS#1 for authorities, the server and tokens, EC for the rest.
const CERTIFICATES: &str = r#"
authority() {
  openssl genrsa -traditional -out "$1.key" 2048
  openssl req -x509 -new -key "$1.key" -subj "/CN=$2" -days 30 -out "$1.crt"
}
leaf() {
  [ -f "$1.key" ] || openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"
  openssl req -new -key "$1.key" -subj "$2" -out request
  printf 'keyUsage=digitalSignature,keyEncipherment\nextendedKeyUsage=clientAuth,serverAuth\n%s' "$4" > extensions
  openssl x509 -req -in request -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -days 20 -extfile extensions -out "$1.crt"
}
authority ca kubernetes
authority etcd-ca etcd-ca
authority front-proxy-ca front-proxy-ca
openssl genrsa -traditional -out sa.key 2048
openssl rsa -in sa.key -pubout -out sa.pub
openssl genrsa -traditional -out apiserver.key 2048
leaf apiserver /CN=kube-apiserver ca "subjectAltName=DNS:kubernetes,DNS:kubernetes.default.svc,IP:10.96.0.1,IP:127.0.0.1,IP:$ADDRESS"
leaf etcd-server /CN=etcd etcd-ca "subjectAltName=IP:127.0.0.1"
leaf apiserver-etcd-client /CN=kube-apiserver-etcd-client etcd-ca
leaf apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client ca
leaf front-proxy-client /CN=front-proxy-client front-proxy-ca
leaf admin /O=system:masters/CN=kubernetes-admin ca
leaf controller-manager /CN=system:kube-controller-manager ca
leaf scheduler /CN=system:kube-scheduler ca
leaf proxy /CN=system:kube-proxy ca
"#;

pub struct ByHand {
    processes: Vec<(&'static str, Inside)>,
    pub machine: Machine,
    folder: tempfile::TempDir,
}

impl ByHand {
    /// Certificates and kubeconfigs are made; nothing runs yet.
    pub fn new() -> ByHand {
        let machine = Machine::start().expect("a machine");
        let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().expect("a folder");
        let cluster = ByHand { processes: Vec::new(), machine, folder };
        let pki = cluster.path("pki");
        std::fs::create_dir(&pki).unwrap();
        let made = std::process::Command::new("bash")
            .args(["-ec", CERTIFICATES])
            .env("ADDRESS", cluster.machine.address())
            .current_dir(&pki)
            .output()
            .expect("bash runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for user in ["admin", "controller-manager", "scheduler", "proxy"] {
            let proof = format!("client-certificate: pki/{user}.crt, client-key: pki/{user}.key");
            cluster.write(&format!("{user}.conf"), &cluster.kubeconfig(&proof));
        }
        cluster
    }

    /// With that proof of who asks.
    pub fn kubeconfig(&self, proof: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://{}:6443', certificate-authority: pki/ca.crt}}}}]\n\
             users: [{{name: u, user: {{{proof}}}}}]\n",
            self.machine.address()
        )
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub fn log(&self, part: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{part}.log"))).unwrap_or_default()
    }

    pub fn kubectl(&self) -> Kubectl {
        let program = testkit::kubectl::programs().pop().expect("there is a kubectl: run `make tools`");
        Kubectl::new(&program, &self.path("admin.conf")).within(Some(self.machine.network()))
    }

    /// Starts a part, for the first time or again.
    pub fn start(&mut self, part: &'static str) {
        let program = if part == "etcd" { PathBuf::from("etcd") } else { testkit::server::binary().unwrap() };
        // All paths begin in the cluster's folder.
        let mut command = self.machine.command("bash");
        command.args(["-c", r#"cd "$0" && exec "$@""#]).arg(self.folder.path()).arg(program);
        if part != "etcd" {
            command.arg(part);
        }
        let log = self.path(&format!("{part}.log"));
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        command.args(self.arguments(part)).env("RUST_BACKTRACE", "0");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a part starts");
        self.processes.push((part, Inside::new(child).expect("a part runs")));
    }

    /// SIGKILL: it can do nothing more.
    pub fn kill(&mut self, part: &str) {
        let index = self.processes.iter().position(|(name, _)| *name == part).expect("the part runs");
        let (_, mut process) = self.processes.remove(index);
        process.signal(rustix::process::Signal::KILL).unwrap();
        assert!(process.wait(PATIENCE).unwrap().is_some(), "{part} has ended");
    }

    fn arguments(&self, part: &str) -> Vec<String> {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match part {
            // As the manifests of kubeadm have them, but for the folders.
            "kube-apiserver" => words(&format!(
                "--advertise-address={} --allow-privileged=true --authorization-mode=Node,RBAC \
                 --client-ca-file=pki/ca.crt --enable-admission-plugins=NodeRestriction \
                 --enable-bootstrap-token-auth=true --etcd-cafile=pki/etcd-ca.crt \
                 --etcd-certfile=pki/apiserver-etcd-client.crt --etcd-keyfile=pki/apiserver-etcd-client.key \
                 --etcd-servers=https://127.0.0.1:2379 \
                 --kubelet-client-certificate=pki/apiserver-kubelet-client.crt \
                 --kubelet-client-key=pki/apiserver-kubelet-client.key --kubelet-certificate-authority=pki/ca.crt \
                 --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname \
                 --proxy-client-cert-file=pki/front-proxy-client.crt \
                 --proxy-client-key-file=pki/front-proxy-client.key \
                 --requestheader-allowed-names=front-proxy-client \
                 --requestheader-client-ca-file=pki/front-proxy-ca.crt \
                 --requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group \
                 --requestheader-username-headers=X-Remote-User --secure-port=6443 \
                 --service-account-issuer=https://kubernetes.default.svc.cluster.local \
                 --service-account-key-file=pki/sa.pub --service-account-signing-key-file=pki/sa.key \
                 --service-cluster-ip-range={SERVICES} --tls-cert-file=pki/apiserver.crt \
                 --tls-private-key-file=pki/apiserver.key --v=3",
                self.machine.address()
            )),
            // Who takes over after a kill does not wait for long.
            "kube-controller-manager" => words(&format!(
                "--allocate-node-cidrs=true --authentication-kubeconfig=controller-manager.conf \
                 --authorization-kubeconfig=controller-manager.conf --bind-address=127.0.0.1 \
                 --client-ca-file=pki/ca.crt --cluster-cidr={PODS} --cluster-name=kubernetes \
                 --cluster-signing-cert-file=pki/ca.crt --cluster-signing-key-file=pki/ca.key \
                 --controllers=*,bootstrapsigner,tokencleaner --kubeconfig=controller-manager.conf \
                 --leader-elect=true --requestheader-client-ca-file=pki/front-proxy-ca.crt \
                 --root-ca-file=pki/ca.crt --service-account-private-key-file=pki/sa.key \
                 --service-cluster-ip-range={SERVICES} --use-service-account-credentials=true {LEADING}"
            )),
            "kube-scheduler" => words(&format!(
                "--authentication-kubeconfig=scheduler.conf --authorization-kubeconfig=scheduler.conf \
                 --bind-address=127.0.0.1 --kubeconfig=scheduler.conf --leader-elect=true {LEADING}"
            )),
            "kubelet" => words(&format!(
                "--bootstrap-kubeconfig=bootstrap-kubelet.conf --kubeconfig=kubelet.conf --config=kubelet.yaml \
                 --fail-swap-on=false --node-ip={} --hostname-override={NODE} --cert-dir=kubelet-pki --root-dir=kubelet \
                 --cgroup-root=/{} --cni-conf-dir=none --cluster-cidr={PODS} --service-cluster-ip-range={SERVICES}",
                self.machine.address(),
                self.machine.name()
            )),
            "kube-proxy" => words(&format!("--config=proxy.yaml --hostname-override={NODE}")),
            "etcd" => words(
                "--name one --data-dir etcd --listen-client-urls https://127.0.0.1:2379 \
                 --advertise-client-urls https://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
                 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster one=http://127.0.0.1:2380 \
                 --cert-file pki/etcd-server.crt --key-file pki/etcd-server.key --client-cert-auth \
                 --trusted-ca-file pki/etcd-ca.crt --log-level error",
            ),
            _ => panic!("there is no part {part}"),
        }
    }
}

const LEADING: &str =
    "--leader-elect-lease-duration=6s --leader-elect-renew-deadline=5s --leader-elect-retry-period=500ms";

impl Drop for ByHand {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for part in PARTS {
                let log = self.log(part);
                let told: Vec<&str> = log.lines().filter(|line| !line.contains(" HTTP ")).collect();
                eprintln!("the last words of {part}:");
                told.iter().rev().take(15).rev().for_each(|line| eprintln!("  {line}"));
            }
        }
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A shared file of the tests.
pub fn testdata(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
