//! The program of the demo image: a small web server, and the few commands that examples and tests want in a container.
//!
//! It stands alone in its image, so it uses nothing but the standard library and is linked statically. Which applet runs
//! is decided by the name it was called under (`/bin/cat`), or by the first argument (`/demo cat`).

mod error;
mod signals;
mod options;
mod serve;
mod http;
mod dns;
mod sockets;
mod files;
mod load;
mod shell;
mod tar;

use std::process::exit;

/// What an applet answers is its exit code; an error is printed and makes it 1.
type Outcome = error::Result<i32>;

type Applet = (&'static str, fn(&[String]) -> Outcome, &'static str);

/// Every command, in the order in which help shows them.
static APPLETS: &[Applet] = &[
    ("serve", serve::serve, "[--port PORT]... answer HTTP (the default, port 8080 or $PORT)"),
    ("get", http::get, "URL [--timeout SECONDS]"),
    ("lookup", dns::lookup, "NAME [SERVER] [--type A|AAAA|SRV|PTR|CNAME]"),
    ("connect", sockets::connect, "HOST:PORT [--udp] [--timeout SECONDS] [--send TEXT]"),
    ("tcp-echo", sockets::tcp_echo, "PORT"),
    ("udp-echo", sockets::udp_echo, "PORT"),
    ("http-echo", serve::http_echo, "PORT"),
    ("sleep", load::sleep, "[SECONDS|infinity] ends at once on SIGTERM"),
    ("ignore-term", load::ignore_term, "live on through SIGTERM"),
    ("crash", load::crash, "[SECONDS] end by a signal"),
    ("exit", load::exit_with, "CODE"),
    ("log", load::log, "[--rate LINES_PER_SECOND] [--bytes N] [--lines N] [--stderr]"),
    ("eat-memory", load::eat_memory, "BYTES (Ki, Mi and Gi are understood)"),
    ("spin", load::spin, "[THREADS] use CPU"),
    ("fork-bomb", load::fork_bomb, "start children until refused"),
    ("true", |_| Ok(0), ""),
    ("false", |_| Ok(1), ""),
    ("cat", files::cat, "[FILE]..."),
    ("write", files::write, "FILE TEXT"),
    ("echo", files::echo, "[-n] [TEXT]..."),
    ("ls", files::ls, "[-l] [-a] [PATH]..."),
    ("stat", files::stat, "PATH..."),
    ("mkdir", files::mkdir, "[-p] PATH..."),
    ("rm", files::rm, "[-r] [-f] PATH..."),
    ("touch", files::touch, "PATH..."),
    ("test", files::test, "-e|-f|-d|-r|-s PATH, -n|-z TEXT, A = B, A != B"),
    ("env", files::env, ""),
    ("id", files::id, ""),
    ("hostname", files::hostname, ""),
    ("mounts", files::mounts, ""),
    ("date", files::date, "seconds since 1970"),
    ("sh", shell::sh, "-c SCRIPT"),
    ("tar", tar::tar, "-cf FILE|- [-C DIR] PATH... or -xf FILE|- [-m] [-C DIR]"),
];

fn main() {
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_default();
    let name = called.rsplit('/').next().unwrap_or_default().to_owned();
    let mut rest: Vec<String> = arguments.collect();
    let applet = match find(&name) {
        Some(applet) => applet,
        None if rest.is_empty() || rest[0].starts_with("--port") => &APPLETS[0],
        None => {
            let wanted = rest.remove(0);
            if wanted == "--help" || wanted == "help" {
                print!("{}", usage());
                exit(0);
            }
            // What the image builder reads, so that the links in /bin cannot miss an applet.
            if wanted == "applets" {
                APPLETS.iter().for_each(|applet| println!("{}", applet.0));
                exit(0);
            }
            find(&wanted).unwrap_or_else(|| {
                eprintln!("demo: no command {wanted:?}\n{}", usage());
                exit(127)
            })
        }
    };
    match applet.1(&rest) {
        Ok(code) => exit(code),
        Err(error) => {
            eprintln!("{}: {error}", applet.0);
            exit(1)
        }
    }
}

fn find(name: &str) -> Option<&'static Applet> {
    // `[` is `test` with a closing bracket, which `test` itself drops.
    let name = if name == "[" { "test" } else { name };
    APPLETS.iter().find(|applet| applet.0 == name)
}

fn usage() -> String {
    let mut text = String::from("usage: demo COMMAND [ARGUMENTS]\n\n");
    for (name, _, help) in APPLETS {
        text.push_str(&format!("  {name:<12} {help}\n"));
    }
    text
}
