//! Walks README.md on a fresh Debian: every command of its code blocks is run as it stands there, and must print what stands
//! below it. Machines have no way out while they do it; what is missing is installed before, by the same commands.
//!
//! `$ ` is a terminal of the first machine, `node$ ` one of another. `...` stands for anything, as in sessions of kubectl;
//! addresses, ages and the random parts of names may differ, and so may the width of columns. There are no other exceptions:
//! a block without a prompt is an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use testkit::session::matches;
use testkit::{Debian, Hub, Place, Terminal};

/// Commands that go on until somebody ends them.
const LONG: [&str; 2] = ["make run", "knarr agent "];
/// Commands that only look, and may be too early.
const LOOKING: [&str; 2] = ["curl ", "kubectl get "];
/// The program and the tests are those that are built already, and one small test stands for all: it runs inside of them.
const VARIABLES: [(&str, &str); 2] = [("PROFILE", "dev"), ("TESTS", "--lib quantity")];
const PATIENCE: Duration = Duration::from_secs(60);
/// Building, where something is not as the tests have built it.
const LONG_PATIENCE: Duration = Duration::from_secs(1200);

#[derive(Debug, PartialEq)]
struct Step {
    line: usize,
    prompt: String,
    command: String,
    expected: Vec<String>,
}

#[test]
fn every_command_of_the_readme_does_what_it_says() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let steps = parse(&text).unwrap();
    let hub = Arc::new(Hub::start(1).unwrap());
    let host = |number: u8, name: &str| {
        let variables: Vec<_> = VARIABLES.into_iter().chain([("KNARR_NODE_NAME", name)]).collect();
        Debian::start(&hub, Place { link: 0, host: number }, &variables).unwrap()
    };
    let (laptop, desktop) = (host(1, "laptop"), host(2, "desktop"));
    prepare(&laptop);
    // The other machine gets the program, and nothing else.
    let mut node = desktop.terminal().unwrap();
    node.run("export PATH=$PATH:$PWD/target/bin", PATIENCE).unwrap();
    let mut terminals = BTreeMap::from([("$", laptop.terminal().unwrap()), ("node$", node)]);
    let (mut running, mut printed) = (Vec::new(), Vec::new());
    for step in &steps {
        // A command with dots is the line that was printed just before, without them.
        let command = match step.command.contains("...") {
            true => {
                printed.iter().find(|line: &&String| same(std::slice::from_ref(&step.command), &[line.to_string()]))
            }
            false => Some(&step.command),
        };
        let command = command.unwrap_or_else(|| panic!("README.md:{}: nobody has printed {}", step.line, step.command));
        let command = command.clone();
        eprintln!("{} {command}", step.prompt);
        if LONG.iter().any(|long| command.starts_with(long)) {
            let host = if step.prompt == "$" { &laptop } else { &desktop };
            let terminal = terminals.get_mut(step.prompt.as_str()).unwrap();
            let mut terminal = std::mem::replace(terminal, host.terminal().unwrap());
            printed = terminal.begin(&command, patience(&command), |lines| same(&step.expected, lines)).unwrap();
            // Everything it needs is there.
            assert!(!printed.iter().any(|line| line.starts_with("installing")), "{printed:#?}");
            running.push(terminal);
        } else {
            printed = run(terminals.get_mut(step.prompt.as_str()).unwrap(), step, &command)
                .unwrap_or_else(|error| panic!("{error:#}\n{}", state_of_the_cluster(&laptop)));
        }
    }
    drop((running, terminals));
}

/// What `make` installs needs the network; what it starts has none.
fn prepare(host: &Debian) {
    let mut terminal = host.connected_terminal().unwrap();
    for command in ["apt-get update -qq && apt-get install -qq -y make", "make tools", "make build"] {
        let began = Instant::now();
        let (printed, code) = terminal.run(command, LONG_PATIENCE).unwrap();
        assert_eq!(code, 0, "{command}:\n{}", printed.join("\n"));
        eprintln!("{command}: {:.0} s", began.elapsed().as_secs_f64());
    }
}

/// What somebody would look at who finds that the commands do not do what they say.
fn state_of_the_cluster(host: &Debian) -> String {
    let look = "export KUBECONFIG=$PWD/target/cluster/admin.kubeconfig; target/bin/kubectl get pods -A -o wide; target/bin/kubectl get events -A";
    let looked = host.terminal().and_then(|mut terminal| terminal.run(look, PATIENCE));
    looked.map_or_else(|error| format!("{error:#}"), |(printed, _)| printed.join("\n"))
}

fn run(terminal: &mut Terminal, step: &Step, command: &str) -> anyhow::Result<Vec<String>> {
    let looks = LOOKING.iter().any(|look| command.starts_with(look));
    let until = Instant::now() + PATIENCE;
    loop {
        let (printed, code) = terminal.run(command, patience(command))?;
        if code == 0 && same(&step.expected, &printed) {
            return Ok(printed);
        }
        anyhow::ensure!(
            looks && Instant::now() < until,
            "README.md:{}: {command} ended with {code} and printed\n{}\ninstead of\n{}",
            step.line,
            printed.join("\n"),
            step.expected.join("\n")
        );
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn patience(command: &str) -> Duration {
    if command.starts_with("make ") { LONG_PATIENCE } else { PATIENCE }
}

fn same(expected: &[String], printed: &[String]) -> bool {
    let plain = |lines: &[String]| lines.iter().map(|line| plain(line)).collect::<Vec<_>>();
    let expected = plain(expected);
    matches(&expected.iter().map(String::as_str).collect::<Vec<_>>(), &plain(printed))
}

/// A line without what differs from run to run.
fn plain(line: &str) -> String {
    line.split_whitespace().map(plain_word).collect::<Vec<_>>().join(" ")
}

fn plain_word(word: &str) -> String {
    if is_age(word) {
        return "AGE".to_owned();
    }
    let parts: Vec<&str> = word.split('-').collect();
    if let [start @ .., hash, id] = &parts[..]
        && id.len() == 5
        && (8..=10).contains(&hash.len())
        && [*hash, *id].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
    {
        return format!("{}-HASH-ID", start.join("-"));
    }
    let is_address = |piece: &str| piece.parse::<std::net::Ipv4Addr>().is_ok();
    let pieces = word.split('/').map(|piece| {
        let (host, port) = piece.split_once(':').unwrap_or((piece, ""));
        let host = if is_address(host) && !host.starts_with("127.") { "ADDRESS" } else { host };
        if piece.contains(':') { format!("{host}:{port}") } else { host.to_owned() }
    });
    pieces.collect::<Vec<_>>().join("/")
}

/// `5s`, `2m30s`, `3h`, as kubectl writes them.
fn is_age(word: &str) -> bool {
    let units = word.bytes().filter(|byte| b"smhd".contains(byte)).count();
    word.starts_with(|first: char| first.is_ascii_digit())
        && (1..=2).contains(&units)
        && word.bytes().all(|byte| byte.is_ascii_digit() || b"smhd".contains(&byte))
        && word.ends_with(['s', 'm', 'h', 'd'])
}

/// The commands of all code blocks, in their order.
fn parse(text: &str) -> anyhow::Result<Vec<Step>> {
    let (mut steps, mut inside): (Vec<Step>, bool) = (Vec::new(), false);
    let mut first_of_block = 0;
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = !inside;
            first_of_block = steps.len();
            continue;
        }
        if !inside {
            continue;
        }
        let prompted =
            ["$", "node$"].iter().find_map(|prompt| Some((*prompt, line.strip_prefix(prompt)?.strip_prefix(' ')?)));
        match prompted {
            Some((prompt, command)) => steps.push(Step {
                line: number + 1,
                prompt: prompt.to_owned(),
                command: command.trim().to_owned(),
                expected: Vec::new(),
            }),
            None if steps.len() > first_of_block => {
                steps.last_mut().expect("there is one").expected.push(line.to_owned());
            }
            None => anyhow::bail!("README.md:{}: a code block begins without a command", number + 1),
        }
    }
    Ok(steps)
}

#[test]
fn what_differs_from_run_to_run_is_no_difference() {
    let check = |expected: &str, printed: &str, answer: bool| {
        assert_eq!(same(&[expected.to_owned()], &[printed.to_owned()]), answer, "{expected} / {printed}");
    };
    check(
        "web-8796d695f-8d42b   1/1  Running 0 6s 10.42.0.4",
        "web-5d8f9c7b6-abcde 1/1 Running   0 2m3s 10.42.1.17",
        true,
    );
    check("web-8796d695f-8d42b   1/1", "web-5d8f9c7b6-abcde 0/1", false);
    check("at 10.0.0.1:6443 after ... ms", "at 172.29.0.1:6443 after 12 ms", true);
    check("on https://127.0.0.1:6443", "on https://10.0.0.1:6443", false);
    check("deployment.apps/web created", "deployment.apps/api created", false);
    let steps = parse("text\n```\n$ a b\none\nnode$ c\n```\n$ no command\n").unwrap();
    let seen: Vec<_> = steps.iter().map(|step| (step.prompt.as_str(), step.command.as_str(), step.line)).collect();
    assert_eq!(seen, [("$", "a b", 3), ("node$", "c", 5)]);
    assert!(parse("```\nno prompt\n```\n").is_err());
}
