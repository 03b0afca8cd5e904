//! knarr on a real machine, as far as one can be had from Debian packages: its own kernel with cgroup v2 and AppArmor,
//! systemd, a disk that forgets, reboots and power cuts. `make machine` runs all of it, `make test` the first one alone.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use testkit::vm::{Config, Guard, Kernel, Parts, Vm};

/// `make machine` sets it.
const ALL: &str = "KNARR_MACHINE";
const POWER_CUTS: &str = "KNARR_POWER_CUTS";
const POWER_CUTS_DEFAULT: usize = 20;
/// How long writers write before the power goes, one round a little longer than the last.
const LOAD_MIN: Duration = Duration::from_secs(4);
const LOAD_STEP: Duration = Duration::from_millis(370);
const KUBECTL: &str =
    "export KUBECONFIG=/var/lib/knarr/admin.kubeconfig; kubectl() { /usr/local/bin/knarr kubectl \"$@\"; }; ";

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: knarr.dev/demo:latest
        imagePullPolicy: Never
        command: [serve]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 2, timeoutSeconds: 10}
        resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 500m, memory: 96Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: http}]
"#;

/// Writers of one round: each tells the test what the API server has acknowledged, as soon as it has.
const WRITERS: &str = r#"
kubectl proxy --port=8001 >/run/proxy.log 2>&1 &
until (exec 5<>/dev/tcp/127.0.0.1/8001) 2>/dev/null; do sleep 0.2; done
# One can open it at a time; all writers have this one.
exec 6>/dev/virtio-ports/acks
write() {
  local name="$1" body
  body="{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"$name\"},\"data\":{\"name\":\"$name\"}}"
  exec 5<>/dev/tcp/127.0.0.1/8001 || return
  printf 'POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s' "${#body}" "$body" >&5
  local answer
  read -r -t 20 answer <&5
  exec 5>&-
  case "$answer" in *" 201 "*) echo "$name" >&6 ;; esac
}
for writer in 1 2 3; do
  (number=0; while true; do number=$((number + 1)); write "round-$ROUND-$writer-$number"; done) &
done
"#;

struct Host(Vm);

impl Host {
    /// A machine that runs, and knarr as one of its files.
    fn boot(parts: &Parts, config: &Config<'_>) -> Host {
        let program = testkit::server::binary().unwrap();
        let mut vm = Vm::new(parts, config, &[("knarr", Path::new(&program))]).unwrap();
        vm.boot().unwrap();
        Host(vm)
    }

    fn install(&mut self, flags: &str) {
        self.0.ok(&format!("/mnt/knarr install server {flags}"));
        self.until_ready();
    }

    fn until_ready(&mut self) {
        self.kubectl_until("the node is ready", "wait --for=condition=Ready node --all --timeout=5s");
    }

    fn kubectl(&mut self, line: &str) -> String {
        self.0.ok(&format!("{KUBECTL} kubectl {line}"))
    }

    fn kubectl_until(&mut self, what: &str, line: &str) -> String {
        self.0.until(what, &format!("{KUBECTL} kubectl {line}"))
    }

    fn apply(&mut self, manifest: &str) {
        self.0.until("the manifest is applied", &format!("{KUBECTL} kubectl apply -f - <<'END'\n{manifest}\nEND"));
    }

    /// The first steps of everybody: a Deployment, a Service that answers, and what it costs.
    fn tour(&mut self) {
        self.apply(WEB);
        let why = "kubectl get events; kubectl describe pods -l app=web; kubectl logs -l app=web --previous";
        self.kubectl_until(
            "the pods run",
            &format!("rollout status deployment/web --timeout=10s || {{ {why}; false; }}"),
        );
        self.answers();
        self.kubectl_until("the node is measured", "top node");
        let pods = self.kubectl_until("the pods are measured", "top pods --no-headers | grep -c ^web- | grep -x 2");
        assert_eq!(pods.trim(), "2");
    }

    fn answers(&mut self) {
        let address = self.kubectl("get service web -o jsonpath={.spec.clusterIP}");
        let ask = format!(
            "exec 5<>/dev/tcp/{address}/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&5; timeout 20 cat <&5 | grep '^pod: web-'"
        );
        self.0.until("the Service answers", &ask);
    }

    /// Which containers run, and since when.
    fn containers(&mut self) -> String {
        self.kubectl(
            "get pods -l app=web -o jsonpath='{range .items[*].status.containerStatuses[0]}{.containerID} {.state.running.startedAt} {.restartCount}{\"\\n\"}{end}' | sort",
        )
    }
}

/// For everybody to read, also of a test that passes, whose output is kept back otherwise.
fn say(line: &str) {
    // Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The parts of a machine, or a line that says why there are none.
fn parts(kernel: Kernel) -> Option<Parts> {
    parts_with(kernel, Guard::AppArmor)
}

fn parts_with(kernel: Kernel, guard: Guard) -> Option<Parts> {
    match Parts::guarded(kernel, guard) {
        Ok(parts) => Some(parts),
        Err(error) => {
            say(&format!("skipped: no virtual machine can be made here: {error:#}"));
            None
        }
    }
}

fn parts_of_all(kernel: Kernel) -> Option<Parts> {
    parts_of_all_with(kernel, Guard::AppArmor)
}

fn parts_of_all_with(kernel: Kernel, guard: Guard) -> Option<Parts> {
    match std::env::var_os(ALL) {
        Some(_) => parts_with(kernel, guard),
        None => {
            say("skipped: `make machine` runs it");
            None
        }
    }
}

/// The short form: a service of systemd, the tour, limits, an out-of-memory kill and AppArmor.
#[test]
fn a_service_on_a_machine_with_cgroup_v2_and_apparmor() {
    let Some(parts) = parts(Kernel::Usual) else { return };
    let mut host = Host::boot(&parts, &Config::default());
    assert_eq!(host.0.ok("stat -f -c %T /sys/fs/cgroup").trim(), "cgroup2fs");
    host.install("");
    assert_eq!(host.0.ok("systemctl is-active knarr.service").trim(), "active");
    let address = "get node machine -o jsonpath='{.status.addresses[?(@.type==\"InternalIP\")].address}'";
    assert_eq!(host.kubectl(address), "10.77.0.1");
    host.tour();
    // The limits are the kernel's, in the groups that systemd left to the service.
    let groups = host.0.ok("find /sys/fs/cgroup -path '*kubepods*' -name memory.max | xargs -r grep -lx $((96 << 20)) | xargs -rn1 dirname");
    let group = groups.lines().last().expect("a container has a group with its limit").to_owned();
    assert_eq!(host.0.ok(&format!("cat {group}/cpu.max")).trim(), "50000 100000");
    assert!(!host.0.ok(&format!("cat {group}/memory.current")).trim().is_empty());

    host.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: hungry}, spec: {restartPolicy: Never, containers: [{name: main, image: knarr.dev/demo, imagePullPolicy: Never, \
         command: [eat-memory, 256Mi], resources: {limits: {memory: 64Mi}}}]}}",
    );
    host.kubectl_until("the pod fails", "wait --for=jsonpath={.status.phase}=Failed pod/hungry --timeout=10s");
    let ended = host.kubectl(
        "get pod hungry -o jsonpath='{.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}'",
    );
    assert_eq!(ended, "OOMKilled 137");
    host.until_ready();

    // Without a word about it in the pod, the profile is the runtime's; who asks for none has none.
    assert_eq!(host.0.ok("aa-enabled").trim(), "Yes");
    host.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: free}, spec: {containers: [{name: main, image: knarr.dev/demo, imagePullPolicy: Never, command: [sleep, '9999'], \
         securityContext: {appArmorProfile: {type: Unconfined}}}]}}",
    );
    host.kubectl_until("the pod runs", "wait --for=condition=Ready pod/free --timeout=10s");
    assert_eq!(host.kubectl("exec free -- cat /proc/1/attr/current").trim(), "unconfined");
    assert_eq!(host.kubectl("exec deployment/web -- cat /proc/1/attr/current").trim(), "knarr-default (enforce)");
}

/// A pod with a volume, by what it and its container say of security.
fn labelled(name: &str, pod: &str, container: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{securityContext: {pod}, volumes: [{{name: data, emptyDir: {{}}}}], \
         containers: [{{name: main, image: knarr.dev/demo, imagePullPolicy: Never, command: [sleep, '9999'], securityContext: {container}, \
         volumeMounts: [{{name: data, mountPath: /data}}]}}]}}}}"
    )
}

/// Every pod has a label of its own: its processes, the commands in it, its root and its volumes. Debian's policy is loaded and refuses
/// nothing, so this says nothing about what a policy that does would refuse.
#[test]
fn containers_have_selinux_labels() {
    let Some(parts) = parts_of_all_with(Kernel::Usual, Guard::Selinux) else { return };
    let mut host = Host::boot(&parts, &Config { memory_mib: 2048, ..Config::default() });
    assert_eq!(host.0.ok("getenforce").trim(), "Permissive");
    host.install("");
    host.apply(&labelled("one", "{}", "{}"));
    host.apply(&labelled("two", "{}", "{}"));
    host.apply(&labelled("own", "{seLinuxOptions: {type: spc_t, level: 's0:c1,c2'}}", "{}"));
    host.apply(&labelled("strong", "{}", "{privileged: true}"));
    host.kubectl_until("the pods run", "wait --for=condition=Ready pod --all --timeout=10s");
    let own_label = |host: &mut Host, pod: &str| {
        let first = host.kubectl(&format!("exec {pod} -- cat /proc/1/attr/current"));
        let command = host.kubectl(&format!("exec {pod} -- cat /proc/self/attr/current"));
        assert_eq!(first, command, "{pod}");
        first.trim_matches(['\0', '\n']).to_owned()
    };
    let (one, two) = (own_label(&mut host, "one"), own_label(&mut host, "two"));
    let level = one.strip_prefix("system_u:system_r:container_t:").expect(&one).to_owned();
    assert!(level.starts_with("s0:c") && level.contains(",c"), "{level}");
    assert!(two.starts_with("system_u:system_r:container_t:s0:c") && two != one, "{two}");
    assert_eq!(own_label(&mut host, "own"), "system_u:system_r:spc_t:s0:c1,c2");
    let service = host.0.ok("cat /proc/$(systemctl show -p MainPID --value knarr.service)/attr/current");
    assert_eq!(own_label(&mut host, "strong"), service.trim_matches(['\0', '\n']));

    let files = format!("system_u:object_r:container_file_t:{level}");
    for place in ["/", "/dev", "/dev/shm", "/dev/pts"] {
        let mounts = host.kubectl("exec one -- cat /proc/mounts");
        let mount = mounts.lines().find(|line| line.split(' ').nth(1) == Some(place)).expect(place);
        let is_labelled =
            mount.contains(&format!("context={files}")) || mount.contains(&format!("context=\"{files}\""));
        assert!(is_labelled, "{mount}");
    }
    let uid = host.kubectl("get pod one -o jsonpath={.metadata.uid}");
    let folder = format!("/var/lib/knarr/kubelet/pods/{uid}");
    for path in ["volumes/kubernetes.io~empty-dir/data", "etc-hosts"] {
        let seen = host.0.ok(&format!("ls -Zd {folder}/{path}"));
        assert!(seen.starts_with(&files), "{seen}");
    }

    // A restarted runtime knows whose level is whose.
    host.0.ok("systemctl restart knarr.service");
    host.until_ready();
    host.apply(&labelled("three", "{}", "{}"));
    host.kubectl_until("the pods run", "wait --for=condition=Ready pod --all --timeout=10s");
    assert_eq!(own_label(&mut host, "one"), one);
    let three = own_label(&mut host, "three");
    assert!(three != one && three != two, "{three}");
}

/// A pod that takes what the node needs is evicted; the others stay.
#[test]
fn memory_pressure_evicts_on_cgroup_v2() {
    let Some(parts) = parts_of_all(Kernel::Usual) else { return };
    let mut host = Host::boot(&parts, &Config::default());
    host.install("--eviction-hard 'memory.available<400Mi'");
    host.tour();
    let before = host.containers();
    host.apply(
        "{apiVersion: v1, kind: Pod, metadata: {name: greedy}, spec: {restartPolicy: Never, terminationGracePeriodSeconds: 0, containers: [{name: main, image: knarr.dev/demo, \
         imagePullPolicy: Never, command: [eat-memory, 900Mi]}]}}",
    );
    host.kubectl_until("it is evicted", "wait --for=jsonpath={.status.reason}=Evicted pod/greedy --timeout=10s");
    host.kubectl_until("the pressure is over", "wait --for=condition=MemoryPressure=false node/machine --timeout=10s");
    assert_eq!(host.containers(), before);
}

/// Every write that was acknowledged is there after the power came back, however often it went.
#[test]
fn power_cuts_under_load_lose_no_acknowledged_write() {
    let Some(parts) = parts_of_all(Kernel::Usual) else { return };
    let cuts = std::env::var(POWER_CUTS).ok().and_then(|cuts| cuts.parse().ok()).unwrap_or(POWER_CUTS_DEFAULT);
    let mut host = Host::boot(&parts, &Config { volatile_disk: true, ..Config::default() });
    host.install("");
    host.tour();
    for round in 1..=cuts {
        host.0.ok(&format!("{{ {KUBECTL} ROUND={round}; {WRITERS}\n}} </dev/null >/dev/null 2>&1 & disown"));
        let before = host.0.acknowledged().len();
        while host.0.acknowledged().len() < before + 10 {
            std::thread::sleep(Duration::from_millis(100));
        }
        std::thread::sleep(LOAD_MIN + LOAD_STEP * round as u32);
        let lost = host.0.cut_power().unwrap();
        let acknowledged = host.0.acknowledged();
        host.0.boot().unwrap();
        host.until_ready();
        let names = host.kubectl_until("the objects are listed", "get configmaps -o name");
        let there: BTreeSet<&str> = names.lines().filter_map(|name| name.strip_prefix("configmap/")).collect();
        let missing: Vec<&String> = acknowledged.iter().filter(|name| !there.contains(name.as_str())).collect();
        assert!(
            missing.is_empty(),
            "after power cut {round} {} of {} are missing: {missing:?}",
            missing.len(),
            acknowledged.len()
        );
        host.kubectl_until("the pods run again", "rollout status deployment/web --timeout=10s");
        host.answers();
        say(&format!("power cut {round}: {} acknowledged writes are there; of the disk: {lost:?}", acknowledged.len()));
    }
}

/// An orderly reboot, another program under running pods, and the end of it all.
#[test]
fn reboot_upgrade_and_uninstall() {
    let Some(parts) = parts_of_all(Kernel::Usual) else { return };
    let mut host = Host::boot(&parts, &Config::default());
    let files = "find / -xdev -not -path '/tmp/*' -not -path '/var/tmp/*' -not -path '/var/log/journal/*' -not -path '/run/*' -not -path '/root/.kube*' -not -path '/var/lib/systemd/*' | sort";
    let before = host.0.ok(files);
    // The name of the machine's own interface is udev's, and not the same after every boot.
    let kernel = "ip -o link | sed 's/@.*//' | awk '{print $2}' | sed -E 's/^(en|eth)[a-z0-9]+:/uplink:/' | sort; nft list tables; ip route show table all | grep -v ' lo ' | wc -l; ip rule | wc -l; \
                  find /sys/fs/cgroup -name '*kube*'; awk '{print $2}' /proc/mounts | grep -i -E 'knarr|kubelet'; ls /var/run/netns 2>/dev/null; aa-status 2>/dev/null | grep -i knarr; true";
    let kernel_before = host.0.ok(kernel);
    host.install("");
    host.tour();

    host.0.reboot().unwrap();
    host.until_ready();
    host.kubectl_until("the pods run again", "rollout status deployment/web --timeout=10s");
    host.answers();

    // Another file under the same name: the service is another process, the containers are the same.
    let containers = host.containers();
    let service = "systemctl show -p MainPID --value knarr.service";
    let process = host.0.ok(service);
    host.0.ok(
        "cp /mnt/knarr /var/tmp/knarr-next && echo next >> /var/tmp/knarr-next && /var/tmp/knarr-next install server",
    );
    assert_ne!(host.0.ok(service), process);
    host.0.ok("cmp /usr/local/bin/knarr /var/tmp/knarr-next && rm /var/tmp/knarr-next");
    host.until_ready();
    assert_eq!(host.containers(), containers);
    host.kubectl("scale deployment/web --replicas=3");
    host.kubectl_until("the next program makes pods", "rollout status deployment/web --timeout=10s");
    host.answers();

    host.0.ok("/usr/local/bin/knarr uninstall --yes");
    let after = host.0.ok(files);
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (before.lines().collect(), after.lines().collect());
    let left: Vec<&&str> = after.difference(&before).collect();
    assert!(left.is_empty(), "files are left: {left:#?}");
    assert_eq!(host.0.ok(kernel), kernel_before);
    assert_eq!(host.0.ok("pgrep -a '^knarr' || true"), "");
    assert_eq!(host.0.ok("systemctl list-units --all --no-legend 'knarr*'").trim(), "");
}

/// A machine that boots before its network is there waits a little, works alone as 127.0.0.1, and takes the address that it gets.
#[test]
fn an_address_that_comes_late() {
    let Some(parts) = parts_of_all(Kernel::Usual) else { return };
    let mut host = Host::boot(&parts, &Config { address: None, ..Config::default() });
    // What it must not do is to end for good.
    host.0.ok("timeout 300 /mnt/knarr install server; test -e /etc/systemd/system/knarr.service");
    let address = format!(
        "{KUBECTL} kubectl get node machine -o jsonpath='{{.status.addresses[?(@.type==\"InternalIP\")].address}}'"
    );
    host.0.until("the node works alone", &format!("{address} | grep -x 127.0.0.1"));
    host.0.ok(
        "device=$(ls /sys/class/net | grep -v -E '^(lo|knarr|veth)' | head -n 1); ip link set $device up; ip address add 10.77.0.9/24 dev $device; \
         ip route add default via 10.77.0.254",
    );
    host.0.until("the node has its address", &format!("{address} | grep -x 10.77.0.9"));
    host.until_ready();
    host.tour();
    // And follows it when it changes, which the next boot does.
    host.0.reboot().unwrap();
    host.0.ok(
        "device=$(ls /sys/class/net | grep -v -E '^(lo|knarr|veth)' | head -n 1); ip link set $device up; ip address add 10.77.0.7/24 dev $device; \
         ip route add default via 10.77.0.254",
    );
    host.0.until("the node has its new address", &format!("{address} | grep -x 10.77.0.7"));
    host.until_ready();
}

/// Two machines, one cable: pods of one reach those of the other.
#[test]
fn a_second_machine_joins() {
    let Some(parts) = parts_of_all(Kernel::Usual) else { return };
    let program = testkit::server::binary().unwrap();
    let files = [("knarr", Path::new(&program))];
    let first = Config { name: "first", ..Config::default() };
    let second = Config { name: "second", address: Some("10.77.0.2/24"), ..Config::default() };
    let (mut one, mut two) = (Vm::new(&parts, &first, &files).unwrap(), Vm::new(&parts, &second, &files).unwrap());
    Vm::connect(&mut one, &mut two);
    one.boot().unwrap();
    two.boot().unwrap();
    let mut host = Host(one);
    host.install("");
    let line = host.0.ok("/usr/local/bin/knarr token create");
    let flags = line.trim().strip_prefix("knarr agent ").expect("a line that joins").to_owned();
    two.ok(&format!("/mnt/knarr install agent {flags}"));
    host.kubectl_until("both are ready", "wait --for=condition=Ready node/first node/second --timeout=10s");
    let spread = WEB.replace(
        "    spec:\n      containers:",
        "    spec:\n      topologySpreadConstraints:\n      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}\n      containers:",
    );
    host.apply(&spread);
    host.kubectl_until("the pods run", "rollout status deployment/web --timeout=10s");
    let nodes = host.kubectl("get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
    assert_eq!(nodes.split_whitespace().collect::<BTreeSet<_>>(), BTreeSet::from(["first", "second"]));
    let address = host.kubectl("get service web -o jsonpath={.spec.clusterIP}");
    let asks = format!(
        "for i in $(seq 12); do exec 5<>/dev/tcp/{address}/80; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&5; timeout 20 cat <&5 | sed -n 's/^pod: //p'; done | sort -u | wc -l | grep -x 2"
    );
    host.0.until("both pods answer to the first", &asks);
    two.until("both pods answer to the second", &asks);
    // Pulled out, the second is missed; the pods that it had are somewhere else.
    two.cut_power().unwrap();
    host.kubectl_until("it is missed", "wait --for=condition=Ready=Unknown node/second --timeout=10s");
    two.boot().unwrap();
    host.kubectl_until("it is back", "wait --for=condition=Ready node/second --timeout=10s");
}

/// A kernel without what containers are started with is refused in one sentence, and the control plane runs there all the same.
#[test]
fn an_older_kernel() {
    let Some(parts) = parts_of_all(Kernel::Old) else { return };
    let mut host = Host::boot(&parts, &Config { kernel: Kernel::Old, ..Config::default() });
    let release = host.0.ok("uname -r").trim().to_owned();
    say(&format!("on {release}"));
    let (code, output) = host.0.run("/mnt/knarr server --data-dir /var/tmp/refused 2>&1").unwrap();
    assert_ne!(code, 0, "{output}");
    let sentence = format!("kernel: Linux {release} is too old for containers of knarr: boot 5.12 or newer");
    assert!(output.contains(&sentence), "{output}");
    host.0.ok("/mnt/knarr install server --disable-agent");
    host.kubectl_until("the API answers", "create configmap there");
    host.0.reboot().unwrap();
    host.kubectl_until("the API answers again", "get configmap there");
}

/// The tour on the next kernel that users will have.
#[test]
fn a_newer_kernel() {
    let Some(parts) = parts_of_all(Kernel::New) else { return };
    let mut host = Host::boot(&parts, &Config { kernel: Kernel::New, ..Config::default() });
    say(&format!("on {}", host.0.ok("uname -r").trim()));
    host.install("");
    host.tour();
}
