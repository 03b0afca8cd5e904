//! Every part of a cluster that runs by itself ends at once when it is told to, whatever it waits for: an API server that is
//! not there, one that never answers, one that lets it lead and then tells it nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::Machine;
use testkit::machine::{Inside, listen_within};

/// Longer than an idle machine needs, shorter than any timeout that could be waited for instead. Other tests run beside this.
const AT_ONCE: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(60);

/// How the API server behaves.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// Takes connections and closes them.
    Closes,
    /// Takes connections and never says anything.
    Silent,
    /// Knows leases, and of everything else says that it is not available.
    OnlyLeases,
    /// Knows leases, and keeps who asks for anything else waiting.
    LeasesThenSilent,
}

/// What each is started with besides the kubeconfig.
const COMPONENTS: &[(&str, &str)] = &[
    ("kube-scheduler", "--secure-port=0"),
    ("kube-controller-manager", "--secure-port=0"),
    ("kube-controller-manager", "--secure-port=0 --use-service-account-credentials=true"),
    ("kube-controller-manager", "--secure-port=0 --leader-elect=false"),
    ("cloud-controller-manager", "--secure-port=0"),
    ("kube-proxy", "--hostname-override=node-1"),
    ("dns", "--node-name=node-1 --bind-address=127.0.0.1 --port=5353"),
    ("ingress", "--ingress-http-port=8081 --ingress-https-port=8443"),
    (
        "kubelet",
        "--fail-swap-on=false --hostname-override=node-1 --root-dir=kubelet --cert-dir=pki --bootstrap-kubeconfig=kubeconfig",
    ),
];

#[test]
fn parts_end_at_once_while_they_wait() {
    let machine = Machine::start().expect("a machine");
    for behaviour in [Behaviour::Closes, Behaviour::Silent, Behaviour::OnlyLeases, Behaviour::LeasesThenSilent] {
        for (component, arguments) in COMPONENTS {
            ends_at_once(&machine, behaviour, component, arguments);
        }
    }
}

fn ends_at_once(machine: &Machine, behaviour: Behaviour, component: &str, arguments: &str) {
    let case = format!("{component} {arguments} {behaviour:?}");
    let folder = tempfile::Builder::new().prefix("knarr-test-").tempdir().expect("a folder");
    let listener = listen_within(&machine.network(), "127.0.0.1:0").expect("a port");
    let port = listener.local_addr().unwrap().port();
    let asked = serve(listener, behaviour);
    write_kubeconfig(&folder.path().join("kubeconfig"), port);
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    // The kubelet writes the second one when it has got its certificate.
    let kubeconfig = if component == "kubelet" { "--kubeconfig=kubelet.conf" } else { "--kubeconfig=kubeconfig" };
    let mut command = machine.command("bash");
    command.args(["-c", r#"cd "$0" && exec "$@""#]).arg(folder.path()).arg(testkit::server::binary().unwrap());
    command.arg(component).arg(kubeconfig).args(arguments.split(' '));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
    let mut process = Inside::new(child).expect("it runs");
    let said = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();

    // Where it can lead, it asks for the lease, takes it, and only then asks for anything else.
    let leads = component.ends_with("-manager") || component == "kube-scheduler";
    let enough = match behaviour {
        Behaviour::OnlyLeases | Behaviour::LeasesThenSilent if leads => 3,
        _ => 1,
    };
    let until = Instant::now() + PATIENCE;
    while asked.load(Ordering::Relaxed) < enough {
        assert!(Instant::now() < until, "{case}: it asks for nothing: {}", said());
        assert!(process.wait(Duration::ZERO).unwrap().is_none(), "{case}: {}", said());
        std::thread::sleep(Duration::from_millis(10));
    }
    let told = Instant::now();
    process.signal(Signal::TERM).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    let took = told.elapsed();
    assert!(status.is_some_and(|status| status.success()), "{case}: {status:?} {}", said());
    assert!(took < AT_ONCE, "{case}: {took:?} {}", said());
}

fn write_kubeconfig(path: &Path, port: u16) {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    );
    std::fs::write(path, text).unwrap();
}

/// Answers how often somebody asked.
fn serve(listener: TcpListener, behaviour: Behaviour) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().flatten() {
            match behaviour {
                Behaviour::Closes => _ = count.fetch_add(1, Ordering::Relaxed),
                Behaviour::Silent => {
                    count.fetch_add(1, Ordering::Relaxed);
                    kept.push(stream);
                }
                Behaviour::OnlyLeases | Behaviour::LeasesThenSilent => {
                    let count = count.clone();
                    let waits = matches!(behaviour, Behaviour::LeasesThenSilent);
                    std::thread::spawn(move || _ = answer(stream, waits, &count));
                }
            }
        }
    });
    asked
}

/// One connection.
fn answer(stream: TcpStream, waits: bool, count: &AtomicUsize) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_lowercase());
        }
        let length =
            head.iter().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        count.fetch_add(1, Ordering::Relaxed);
        let (code, text) = match head[0].contains("/leases") {
            // Nobody has it, and who wants it gets it.
            true if head[0].starts_with("get") => ("404 Not Found", status(404, "NotFound")),
            true => ("200 OK", String::from_utf8_lossy(&body).into_owned()),
            false if waits => {
                std::thread::sleep(PATIENCE);
                return Ok(());
            }
            false => ("503 Service Unavailable", status(503, "ServiceUnavailable")),
        };
        let length = text.len();
        write!(stream, "HTTP/1.1 {code}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{text}")?;
    }
}

fn status(code: u16, reason: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"{reason}","message":"no","code":{code}}}"#
    )
}
