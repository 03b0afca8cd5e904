//! SELinux labels of containers: parsing, composing, and choosing the categories that keep pods apart. Data in, data out.

use std::collections::BTreeMap;
use std::fmt;

/// `user:role:type:level`; policies without levels leave the last out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: Option<String>,
}

impl Label {
    /// What is not at least user, role and type is no label. A level has colons of its own.
    pub fn parse(text: &str) -> Option<Label> {
        let mut parts = text.splitn(4, ':').map(str::to_owned);
        let label = Label { user: parts.next()?, role: parts.next()?, kind: parts.next()?, level: parts.next() };
        let named = [&label.user, &label.role, &label.kind].iter().all(|part| !part.is_empty());
        named.then_some(label)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Label { user, role, kind, level } = self;
        match level {
            Some(level) => write!(f, "{user}:{role}:{kind}:{level}"),
            None => write!(f, "{user}:{role}:{kind}"),
        }
    }
}

/// What a pod or a container asks for. Empty parts are the policy's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub user: String,
    pub role: String,
    pub kind: String,
    pub level: String,
}

impl Options {
    pub fn is_empty(&self) -> bool {
        *self == Options::default()
    }
}

/// The labels of processes and of files of containers, as the machine's policy has them: `container_t` and `container_file_t`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contexts {
    pub process: Label,
    pub file: Label,
}

impl Contexts {
    /// From a file of `name = "label"` lines. Without the two labels the policy knows no containers.
    pub fn parse(text: &str) -> Option<Contexts> {
        let find = |wanted: &str| text.lines().find_map(|line| value_of(line, wanted)).and_then(Label::parse);
        Some(Contexts { process: find("process")?, file: find("file")? })
    }

    /// The labels of a process and of its files. The level is the one asked for, else `level`, for policies that have levels.
    pub fn labels(&self, asked: &Options, level: &str) -> (Label, Label) {
        let or = |asked: &String, default: &String| if asked.is_empty() { default } else { asked }.clone();
        let level = if !asked.level.is_empty() {
            Some(asked.level.clone())
        } else {
            self.process.level.as_ref().map(|_| level.to_owned())
        };
        let process = Label {
            user: or(&asked.user, &self.process.user),
            role: or(&asked.role, &self.process.role),
            kind: or(&asked.kind, &self.process.kind),
            level: level.clone(),
        };
        // Files keep the policy's role and type, whatever the process is.
        let file = Label {
            user: or(&asked.user, &self.file.user),
            role: self.file.role.clone(),
            kind: self.file.kind.clone(),
            level: level.or_else(|| self.file.level.clone()),
        };
        (process, file)
    }
}

fn value_of<'a>(line: &'a str, wanted: &str) -> Option<&'a str> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.split_once('=')?;
    (name.trim() == wanted).then(|| value.trim().trim_matches('"'))
}

/// The policy's name in `/etc/selinux/config`.
pub(super) fn policy_name(config: &str) -> Option<&str> {
    config.lines().find_map(|line| value_of(line, "SELINUXTYPE")).filter(|name| !name.is_empty() && !name.contains('/'))
}

/// Whether the text is a level: `s0`, `s0-s0`, and with categories `s0:c1,c2`, `s0:c0.c3`.
pub fn is_level(text: &str) -> bool {
    let (sensitivity, categories) = match text.split_once(':') {
        Some((sensitivity, categories)) => (sensitivity, Some(categories)),
        None => (text, None),
    };
    let (low, high) = match sensitivity.split_once('-') {
        Some((low, high)) => (low, Some(high)),
        None => (sensitivity, None),
    };
    let is_sensitivity = |text: &str| numbered(text, 's', 1);
    let is_range = |text: &str| match text.split_once('.') {
        Some((first, last)) => numbered(first, 'c', 4) && numbered(last, 'c', 4),
        None => numbered(text, 'c', 4),
    };
    is_sensitivity(low)
        && high.is_none_or(is_sensitivity)
        && categories.is_none_or(|categories| categories.split(',').all(is_range))
}

fn numbered(text: &str, letter: char, digits_max: usize) -> bool {
    let Some(digits) = text.strip_prefix(letter) else { return false };
    (1..=digits_max).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
}

/// Categories of a policy.
const CATEGORIES: u32 = 1024;
/// Pairs of two different categories.
const PAIRS: u32 = CATEGORIES * (CATEGORIES - 1) / 2;

/// The levels of pods that are there, with how many have each: who names a level may name another's.
#[derive(Clone, Debug, Default)]
pub struct Levels(BTreeMap<String, usize>);

impl Levels {
    pub fn take(&mut self, level: &str) {
        *self.0.entry(level.to_owned()).or_default() += 1;
    }

    pub fn release(&mut self, level: &str) {
        let Some(count) = self.0.get_mut(level) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(level);
        }
    }

    /// Takes a level that nobody has, beginning to look at a random place. None when all are taken.
    pub fn take_free(&mut self, random: u32) -> Option<String> {
        let mut pair = pair(random % PAIRS);
        for _ in 0..PAIRS {
            let level = format!("s0:c{},c{}", pair.0, pair.1);
            if !self.0.contains_key(&level) {
                self.take(&level);
                return Some(level);
            }
            pair = after(pair);
        }
        None
    }
}

/// The pair at a place in the order of all: after those of the first category with a higher one come those of the next.
fn pair(mut place: u32) -> (u32, u32) {
    let mut first = 0;
    while place >= CATEGORIES - 1 - first {
        place -= CATEGORIES - 1 - first;
        first += 1;
    }
    (first, first + 1 + place)
}

fn after((first, second): (u32, u32)) -> (u32, u32) {
    if second + 1 < CATEGORIES {
        (first, second + 1)
    } else if first + 2 < CATEGORIES {
        (first + 1, first + 2)
    } else {
        (0, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
        # containers
        process = "system_u:system_r:container_t:s0"
        content = "system_u:object_r:virt_var_lib_t:s0"
        file = "system_u:object_r:container_file_t:s0"
        ro_file="system_u:object_r:container_ro_file_t:s0"
    "#;

    #[test]
    fn labels_come_back_as_they_were() {
        for text in ["u:r:t", "u:r:t:s0", "system_u:object_r:container_file_t:s0:c1,c2", "u:r:t:s0-s0:c0.c1023"] {
            assert_eq!(Label::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "u", "u:r", "u::t", ":r:t:s0"] {
            assert_eq!(Label::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_policy_names_the_labels_of_containers() {
        let found = Contexts::parse(POLICY).unwrap();
        assert_eq!(found.process.to_string(), "system_u:system_r:container_t:s0");
        assert_eq!(found.file.to_string(), "system_u:object_r:container_file_t:s0");
        assert_eq!(Contexts::parse("process = \"u:r:t:s0\"\n"), None);
        assert_eq!(Contexts::parse(""), None);
        assert_eq!(policy_name("# x\nSELINUX=permissive\nSELINUXTYPE=default\n"), Some("default"));
        assert_eq!(policy_name("SELINUXTYPE=../../etc\n"), None);
    }

    #[test]
    fn options_override_parts_of_the_label() {
        let check = |user: &str, role: &str, kind: &str, level: &str, process: &str, file: &str| {
            let [user, role, kind, level] = [user, role, kind, level].map(str::to_owned);
            let made = Contexts::parse(POLICY).unwrap().labels(&Options { user, role, kind, level }, "s0:c5,c6");
            assert_eq!((made.0.to_string().as_str(), made.1.to_string().as_str()), (process, file));
        };
        let (process, file) = ("system_u:system_r:container_t:s0:c5,c6", "system_u:object_r:container_file_t:s0:c5,c6");
        check("", "", "", "", process, file);
        check("", "", "spc_t", "", "system_u:system_r:spc_t:s0:c5,c6", file);
        check(
            "",
            "user_r",
            "",
            "s0:c1,c2",
            "system_u:user_r:container_t:s0:c1,c2",
            "system_u:object_r:container_file_t:s0:c1,c2",
        );
        check(
            "user_u",
            "user_r",
            "user_t",
            "s0:c1,c2",
            "user_u:user_r:user_t:s0:c1,c2",
            "user_u:object_r:container_file_t:s0:c1,c2",
        );
    }

    #[test]
    fn a_policy_without_levels_gets_none_that_nobody_asked_for() {
        let plain = Contexts::parse("process=a:b:c\nfile=a:b:d\n").unwrap();
        let made = plain.labels(&Options::default(), "s0:c5,c6");
        assert_eq!((made.0.to_string().as_str(), made.1.to_string().as_str()), ("a:b:c", "a:b:d"));
    }

    #[test]
    fn levels_are_told_from_other_text() {
        for good in ["s0", "s0-s0", "s0:c0", "s0:c0.c3", "s0:c0,c3", "s0-s0:c0,c3.c6,c8.c10", "s0:c1,c1023"] {
            assert!(is_level(good), "{good}");
        }
        for bad in
            ["", "s", "s10", "c0", "s0:", "s0,c0,c3", "s0:c0.c3.c6", "s0-s0,c0", "s0:c0,", "s0:c12345", "s0:c1\n", "S0"]
        {
            assert!(!is_level(bad), "{bad}");
        }
    }

    #[test]
    fn every_pod_has_categories_of_its_own() {
        for (place, expected) in [(0, (0, 1)), (1022, (0, 1023)), (1023, (1, 2)), (PAIRS - 1, (1022, 1023))] {
            assert_eq!(pair(place), expected);
            assert_eq!(after(pair(place)), pair((place + 1) % PAIRS), "{place}");
        }
        let mut levels = Levels::default();
        assert_eq!(levels.take_free(7).as_deref(), Some("s0:c0,c8"));
        assert_eq!(levels.take_free(7).as_deref(), Some("s0:c0,c9"), "it is taken");
        levels.take("s0:c0,c8");
        levels.release("s0:c0,c8");
        assert_eq!(levels.take_free(7).as_deref(), Some("s0:c0,c10"), "one of two still has it");
        levels.release("s0:c0,c8");
        assert_eq!(levels.take_free(7).as_deref(), Some("s0:c0,c8"), "it is free again");
        levels.release("s0:c999,c1000");
        let mut full = Levels::default();
        let mut next = (0, 1);
        for _ in 0..PAIRS {
            full.take(&format!("s0:c{},c{}", next.0, next.1));
            next = after(next);
        }
        assert_eq!((full.0.len() as u32, next), (PAIRS, (0, 1)), "all pairs differ");
        assert_eq!(full.take_free(3), None);
    }
}
