//! Servers on machines of their own, each with a member of etcd.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::{Hub, Machine, Options, Place, Server};

/// Debug builds on a machine that runs other tests, too.
pub const PATIENCE: Duration = Duration::from_secs(120);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// `server-1`, `server-2` and so on; the others have joined the first.
pub struct Servers {
    pub servers: Vec<Server>,
    pub hub: Arc<Hub>,
}

impl Servers {
    pub fn start(count: u8, more: &[&str]) -> Servers {
        let hub = Arc::new(Hub::start(1).unwrap());
        let mut all = Servers { servers: Vec::new(), hub };
        for index in 0..count {
            let join =
                all.servers.first().map_or("--cluster-init".to_owned(), |first| format!("--server={}", reached(first)));
            let mut arguments = named(index);
            arguments.push(join);
            arguments.extend(more.iter().map(|argument| argument.to_string()));
            let machine = Some(all.machine(index));
            all.servers.push(Server::start_with(Options { arguments, machine }).unwrap());
        }
        all
    }

    /// A new machine in the place of that number.
    pub fn machine(&self, index: u8) -> Arc<Machine> {
        Arc::new(Machine::start_on(&self.hub, Place { link: 0, host: index + 1 }).unwrap())
    }

    /// What a command of knarr says on a server's machine, and whether it succeeds. The flag of the folder is added.
    pub fn knarr(&self, index: usize, line: &[&str]) -> (bool, String) {
        let mut command = self.servers[index].machine().command(testkit::server::binary().unwrap());
        let output = command.args(line).arg("--data-dir").arg(self.servers[index].data_dir()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// The same where it must succeed.
    pub fn knarr_ok(&self, index: usize, line: &[&str]) -> String {
        let (done, said) = self.knarr(index, line);
        assert!(done, "{line:?}: {said}");
        said
    }

    /// The server and its etcd, at once.
    pub fn kill(&mut self, index: usize) {
        let pid = self.servers[index].data_dir().join("etcd/pid");
        self.servers[index].machine().shell(&format!("kill -9 $(cat {})", pid.display())).unwrap();
        self.servers[index].kill().unwrap();
    }

    pub fn log(&self, index: usize) -> String {
        std::fs::read_to_string(self.servers[index].data_dir().join("log")).unwrap_or_default()
    }
}

/// The flags that a server has whatever it does.
pub fn named(index: u8) -> Vec<String> {
    vec!["--node-name".into(), format!("server-{}", index + 1), "--token=shared by all".into()]
}

/// How others reach it.
pub fn reached(server: &Server) -> String {
    server.url.replace("127.0.0.1", &server.machine().address())
}
