//! Files, and what a process can say about itself.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use crate::Outcome;
use crate::error::Result;

pub fn cat(arguments: &[String]) -> Outcome {
    let mut out = std::io::stdout().lock();
    let mut code = 0;
    let standard_input = ["-".to_owned()];
    for path in if arguments.is_empty() { &standard_input } else { arguments } {
        let copied = match path.as_str() {
            "-" => std::io::copy(&mut std::io::stdin().lock(), &mut out),
            path => fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut out)),
        };
        if let Err(error) = copied {
            eprintln!("cat: {path}: {error}");
            code = 1;
        }
    }
    out.flush()?;
    Ok(code)
}

pub fn write(arguments: &[String]) -> Outcome {
    let (path, words) = arguments.split_first().ok_or("which file?")?;
    fs::write(path, format!("{}\n", words.join(" "))).map_err(|error| format!("{path}: {error}"))?;
    Ok(0)
}

pub fn echo(arguments: &[String]) -> Outcome {
    print!("{}", echoed(arguments));
    std::io::stdout().flush()?;
    Ok(0)
}

pub fn echoed(arguments: &[String]) -> String {
    match arguments.split_first() {
        Some((first, rest)) if first == "-n" => rest.join(" "),
        _ => format!("{}\n", arguments.join(" ")),
    }
}

pub fn ls(arguments: &[String]) -> Outcome {
    let (flags, mut paths): (Vec<_>, Vec<_>) =
        arguments.iter().map(String::as_str).partition(|text| text.starts_with('-') && text.len() > 1);
    let (long, all) = (flags.iter().any(|flag| flag.contains('l')), flags.iter().any(|flag| flag.contains('a')));
    if paths.is_empty() {
        paths.push(".");
    }
    let mut code = 0;
    for path in &paths {
        // A link to a folder is listed as the folder, as elsewhere.
        let metadata = match fs::metadata(path).or_else(|_| fs::symlink_metadata(path)) {
            Ok(metadata) => metadata,
            Err(error) => {
                eprintln!("ls: {path}: {error}");
                code = 1;
                continue;
            }
        };
        if !metadata.is_dir() || flags.iter().any(|flag| flag.contains('d')) {
            print_entry(Path::new(path), path, long);
            continue;
        }
        if paths.len() > 1 {
            println!("{path}:");
        }
        let entries = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
        names.sort();
        for name in names.iter().filter(|name| all || !name.starts_with('.')) {
            print_entry(&Path::new(path).join(name), name, long);
        }
    }
    Ok(code)
}

fn print_entry(path: &Path, name: &str, long: bool) {
    let Some(metadata) = fs::symlink_metadata(path).ok().filter(|_| long) else {
        println!("{name}");
        return;
    };
    let target = fs::read_link(path).map(|target| format!(" -> {}", target.display())).unwrap_or_default();
    println!(
        "{} {:>3} {:>5} {:>5} {:>9} {} {name}{target}",
        permissions(&metadata),
        metadata.nlink(),
        metadata.uid(),
        metadata.gid(),
        metadata.size(),
        metadata.mtime()
    );
}

pub fn stat(arguments: &[String]) -> Outcome {
    for path in arguments {
        let metadata = fs::symlink_metadata(path).map_err(|error| format!("{path}: {error}"))?;
        println!(
            "{path}: {} {} mode {:04o} uid {} gid {} size {} links {} inode {} device {} modified {}",
            permissions(&metadata),
            kind(&metadata),
            metadata.mode() & 0o7777,
            metadata.uid(),
            metadata.gid(),
            metadata.size(),
            metadata.nlink(),
            metadata.ino(),
            metadata.dev(),
            metadata.mtime()
        );
    }
    if arguments.is_empty() { Err("which file?".into()) } else { Ok(0) }
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "directory",
        () if kind.is_symlink() => "link",
        () if kind.is_fifo() => "fifo",
        () if kind.is_socket() => "socket",
        () if kind.is_block_device() => "block",
        () if kind.is_char_device() => "character",
        () => "file",
    }
}

fn permissions(metadata: &Metadata) -> String {
    let first = match kind(metadata) {
        "directory" => 'd',
        "link" => 'l',
        "fifo" => 'p',
        "socket" => 's',
        "block" => 'b',
        "character" => 'c',
        _ => '-',
    };
    let mode = metadata.mode();
    let mut text = String::from(first);
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        text.push(if mode >> bit & 1 == 1 { letter } else { '-' });
    }
    if mode & 0o1000 != 0 {
        text.replace_range(9..10, "t");
    }
    text
}

pub fn mkdir(arguments: &[String]) -> Outcome {
    let parents = arguments.iter().any(|text| text == "-p");
    for path in arguments.iter().filter(|text| !text.starts_with('-')) {
        let made = if parents { fs::create_dir_all(path) } else { fs::create_dir(path) };
        made.map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(0)
}

pub fn rm(arguments: &[String]) -> Outcome {
    let has = |letter: char| arguments.iter().any(|text| text.starts_with('-') && text.contains(letter));
    let (recursive, force) = (has('r') || has('R'), has('f'));
    for path in arguments.iter().filter(|text| !text.starts_with('-')) {
        let removed = match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() && recursive => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if force && error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.map_err(|error| format!("{path}: {error}"))?,
        }
    }
    Ok(0)
}

pub fn touch(arguments: &[String]) -> Outcome {
    for path in arguments {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|file| file.set_modified(SystemTime::now())).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(0)
}

/// `kubectl cp` asks `test -d` before it unpacks.
pub fn test(arguments: &[String]) -> Outcome {
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if words.last() == Some(&"]") {
        words.pop();
    }
    let negated = words.first() == Some(&"!");
    let holds = match &words[usize::from(negated)..] {
        [] => false,
        [text] => !text.is_empty(),
        ["-e", path] => Path::new(path).exists(),
        ["-f", path] => Path::new(path).is_file(),
        ["-d", path] => Path::new(path).is_dir(),
        ["-r", path] => fs::File::open(path).is_ok(),
        ["-s", path] => fs::metadata(path).is_ok_and(|metadata| metadata.size() > 0),
        ["-L" | "-h", path] => Path::new(path).is_symlink(),
        ["-n", text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        [left, operator, right] => {
            let (Ok(left), Ok(right)) = (left.parse::<i64>(), right.parse::<i64>()) else {
                return Err("numbers are wanted".into());
            };
            match *operator {
                "-eq" => left == right,
                "-ne" => left != right,
                "-lt" => left < right,
                "-le" => left <= right,
                "-gt" => left > right,
                "-ge" => left >= right,
                _ => return Err(format!("no operator {operator:?}").into()),
            }
        }
        _ => return Err("the condition cannot be understood".into()),
    };
    Ok(i32::from(holds == negated))
}

pub fn env(_: &[String]) -> Outcome {
    print!("{}", environment());
    Ok(0)
}

pub fn environment() -> String {
    let mut lines: Vec<String> = std::env::vars_os()
        .map(|(name, value)| format!("{}={}\n", name.to_string_lossy(), value.to_string_lossy()))
        .collect();
    lines.sort();
    lines.concat()
}

pub fn id(_: &[String]) -> Outcome {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    // Of the four numbers (real, effective, saved, file system) the effective one is asked for.
    let (user, group) = (field("Uid:"), field("Gid:"));
    let number = |numbers: &[String]| numbers.get(1).cloned().unwrap_or_default();
    println!("uid={} gid={} groups={}", number(&user), number(&group), field("Groups:").join(","));
    Ok(0)
}

pub fn hostname(_: &[String]) -> Outcome {
    println!("{}", host_name());
    Ok(0)
}

pub fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

pub fn mounts(_: &[String]) -> Outcome {
    cat(&["/proc/self/mounts".to_owned()])
}

pub fn date(_: &[String]) -> Outcome {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    println!("{}.{:03}", now.as_secs(), now.subsec_millis());
    Ok(0)
}

/// Reads a stream to its end; used where a whole input is wanted.
pub fn read_all(mut from: impl Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes)?;
    Ok(bytes)
}
