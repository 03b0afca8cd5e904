//! Debian's nginx as its ingress controller sets it up: a worker for each processor, kept connections to the backend, the
//! same headers for it, and no access log, as we have none.

use std::process::Stdio;

use anyhow::Context;
use testkit::Machine;
use testkit::machine::{ADDRESS, Inside};

use super::HOST;
use crate::process;

pub const PORT: u16 = 8081;

pub struct Nginx {
    master: Inside,
    _folder: tempfile::TempDir,
}

impl Nginx {
    /// Nothing where there is no nginx.
    pub fn start(machine: &Machine, backend_port: u16) -> anyhow::Result<Option<Nginx>> {
        let unpacked = testkit::kubectl::tools_dir().map(|folder| folder.join("nginx"));
        let known = unpacked.into_iter().chain(["/usr/sbin/nginx".into()]);
        let Some(program) = known.into_iter().find(|path| path.is_file()) else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("knarr-bench-").tempdir()?;
        let path = folder.path().display();
        let configuration = format!(
            "worker_processes auto;
daemon off;
user root;
pid {path}/pid;
error_log {path}/error.log;
events {{ worker_connections 4096; multi_accept on; use epoll; }}
http {{
    access_log off;
    keepalive_timeout 75s;
    keepalive_requests 1000000;
    client_body_temp_path {path}/body;
    proxy_temp_path {path}/proxy;
    fastcgi_temp_path {path}/fastcgi;
    uwsgi_temp_path {path}/uwsgi;
    scgi_temp_path {path}/scgi;
    upstream backend {{ server {ADDRESS}:{backend_port}; keepalive 320; keepalive_requests 1000000; }}
    server {{
        listen {ADDRESS}:{PORT} backlog=4096;
        server_name {HOST};
        location / {{
            proxy_pass http://backend;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_set_header Host $http_host;
            proxy_set_header X-Request-ID $request_id;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header X-Forwarded-Port $server_port;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Scheme $scheme;
            proxy_set_header X-Scheme $scheme;
            proxy_buffering off;
        }}
    }}
}}
"
        );
        let file = folder.path().join("nginx.conf");
        std::fs::write(&file, configuration)?;
        let mut command = machine.command(&program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let master = Inside::new(command.spawn().context("start nginx")?)?;
        Ok(Some(Nginx { master, _folder: folder }))
    }

    fn processes(&self) -> Vec<u32> {
        let pid = self.master.pid();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let workers = children.split_whitespace().filter_map(|text| text.parse().ok());
        std::iter::once(pid).chain(workers).collect()
    }

    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        self.processes().into_iter().map(process::cpu_seconds).sum()
    }

    pub fn resident_mib(&self) -> anyhow::Result<f64> {
        self.processes().into_iter().map(process::resident_mib).sum()
    }
}
