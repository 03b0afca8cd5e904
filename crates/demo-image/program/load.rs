//! Processes that behave in a wanted way: wait, end, write, use memory, CPU or process numbers.

use std::io::Write;
use std::process::{Command, exit};
use std::thread;
use std::time::Duration;

use crate::options::Options;
use crate::{Outcome, signals};

const PAGE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1 << 20;

pub fn sleep(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let mut total = Duration::ZERO;
    for text in arguments {
        if matches!(text.as_str(), "infinity" | "inf") {
            forever();
        }
        let (number, unit) = match text.find(|character: char| character.is_ascii_alphabetic()) {
            Some(at) => text.split_at(at),
            None => (text.as_str(), "s"),
        };
        let factor = match unit {
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(format!("{text:?} is no time").into()),
        };
        let seconds = number.parse::<f64>().map_err(|_| format!("{text:?} is no time"))? * factor;
        total += Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is no time"))?;
    }
    if arguments.is_empty() {
        forever();
    }
    thread::sleep(total);
    Ok(0)
}

pub fn ignore_term(_: &[String]) -> Outcome {
    signals::ignore();
    println!("SIGTERM is ignored");
    forever()
}

/// Ends by SIGABRT, which ends even the first process of a container.
pub fn crash(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    if let Some(text) = arguments.first() {
        let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        thread::sleep(seconds.ok_or_else(|| format!("{text:?} is no time"))?);
    }
    eprintln!("crash as asked");
    std::process::abort()
}

pub fn exit_with(arguments: &[String]) -> Outcome {
    let code = arguments.first().map_or(Ok(0), |text| text.parse());
    code.map_err(|_| "an exit code is a number".into())
}

/// Numbered lines: `--lines` of them or without end, `--rate` a second (0: as fast as can be), `--bytes` long.
pub fn log(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let mut options = Options::new(arguments);
    let rate: f64 = options.value("--rate")?.unwrap_or(1.0);
    let bytes: usize = options.value("--bytes")?.unwrap_or(0);
    let lines: u64 = options.value("--lines")?.unwrap_or(u64::MAX);
    let errors = options.flag("--stderr");
    options.positional(0, 0)?;
    let mut out: Box<dyn Write> = if errors { Box::new(std::io::stderr()) } else { Box::new(std::io::stdout().lock()) };
    for number in 1..=lines {
        let mut line = format!("line {number}");
        // The line break counts as one of the bytes.
        if line.len() + 1 < bytes {
            line.push(' ');
            line.extend(std::iter::repeat_n('x', bytes - line.len() - 1));
        }
        writeln!(out, "{line}")?;
        if rate > 0.0 && number < lines {
            thread::sleep(Duration::from_secs_f64(1.0 / rate));
        }
    }
    Ok(0)
}

/// Writes to every page, so that the memory is really used, and then keeps it.
pub fn eat_memory(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let bytes = arguments.first().and_then(|text| bytes(text)).ok_or("how many bytes?")?;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut eaten = 0;
    while eaten < bytes {
        let mut chunk = vec![0; usize::min(CHUNK_BYTES, bytes - eaten)];
        chunk.iter_mut().step_by(PAGE_BYTES).for_each(|byte| *byte = 1);
        eaten += chunk.len();
        kept.push(std::hint::black_box(chunk));
    }
    println!("using {eaten} bytes");
    forever()
}

pub fn spin(arguments: &[String]) -> Outcome {
    signals::end_at_once();
    let threads: usize = arguments.first().map_or(Ok(1), |text| text.parse()).map_err(|_| "how many threads?")?;
    for _ in 1..threads {
        thread::spawn(turn);
    }
    turn()
}

/// Children until the kernel refuses one; says how many there were, and waits with them.
pub fn fork_bomb(_: &[String]) -> Outcome {
    signals::end_at_once();
    let mut children = Vec::new();
    loop {
        match Command::new("/proc/self/exe").args(["sleep", "infinity"]).spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                println!("{} children, then: {error}", children.len());
                break;
            }
        }
    }
    forever()
}

fn turn() -> ! {
    let mut number = 0_u64;
    loop {
        number = std::hint::black_box(number.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
}

fn forever() -> ! {
    let Ok(end) = std::io::pipe() else { exit(1) };
    // Nobody writes into this pipe, so the read never ends; a signal does.
    let (mut read, _write) = end;
    let _ = std::io::Read::read_exact(&mut read, &mut [0]);
    exit(0)
}

fn bytes(text: &str) -> Option<usize> {
    let at = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let shift = match &text[at..] {
        "" => 0,
        "Ki" | "k" | "K" => 10,
        "Mi" | "m" | "M" => 20,
        "Gi" | "g" | "G" => 30,
        _ => return None,
    };
    text[..at].parse::<usize>().ok()?.checked_mul(1 << shift)
}
