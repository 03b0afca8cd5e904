//! What changed between two objects, as the lines that differ with a little of what stands around them.

use serde::Serialize;
use serde_json::Value;

const CONTEXT: usize = 3;
/// Above this many pairs of lines the search for common lines costs more than it helps.
const PAIRS_MAX: usize = 1_000_000;

/// A unified diff of the two values written as indented JSON.
pub fn diff(old: &Value, new: &Value) -> String {
    let (old, new) = (pretty(old), pretty(new));
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    hunks(&edits(&old, &new))
}

fn pretty(value: &Value) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8_lossy(&out).into_owned(),
        // Writing JSON to memory cannot fail; the compact form would do as well.
        Err(_) => value.to_string(),
    }
}

enum Edit<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

fn edits<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Edit<'a>> {
    let start = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let rest = old.len().min(new.len()) - start;
    let end = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(old, new)| old == new).count();
    let (old_middle, new_middle) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let mut out: Vec<Edit> = old[..start].iter().map(|line| Edit::Same(line)).collect();
    if old_middle.len() * new_middle.len() <= PAIRS_MAX {
        longest_common(old_middle, new_middle, &mut out);
    } else {
        out.extend(old_middle.iter().map(|line| Edit::Removed(line)));
        out.extend(new_middle.iter().map(|line| Edit::Added(line)));
    }
    out.extend(old[old.len() - end..].iter().map(|line| Edit::Same(line)));
    out
}

fn longest_common<'a>(old: &[&'a str], new: &[&'a str], out: &mut Vec<Edit<'a>>) {
    let width = new.len() + 1;
    let mut lengths = vec![0u32; (old.len() + 1) * width];
    for row in (0..old.len()).rev() {
        for column in (0..new.len()).rev() {
            lengths[row * width + column] = if old[row] == new[column] {
                lengths[(row + 1) * width + column + 1] + 1
            } else {
                lengths[(row + 1) * width + column].max(lengths[row * width + column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    while row < old.len() && column < new.len() {
        if old[row] == new[column] {
            out.push(Edit::Same(old[row]));
            row += 1;
            column += 1;
        } else if lengths[(row + 1) * width + column] >= lengths[row * width + column + 1] {
            out.push(Edit::Removed(old[row]));
            row += 1;
        } else {
            out.push(Edit::Added(new[column]));
            column += 1;
        }
    }
    out.extend(old[row..].iter().map(|line| Edit::Removed(line)));
    out.extend(new[column..].iter().map(|line| Edit::Added(line)));
}

fn hunks(edits: &[Edit]) -> String {
    let changed: Vec<usize> = (0..edits.len()).filter(|index| !matches!(edits[*index], Edit::Same(_))).collect();
    let mut out = String::new();
    let mut next = 0;
    while next < changed.len() {
        let first = changed[next].saturating_sub(CONTEXT);
        let mut last = changed[next];
        while next < changed.len() && changed[next] <= last + 2 * CONTEXT + 1 {
            last = changed[next];
            next += 1;
        }
        hunk(&mut out, edits, first, (last + CONTEXT + 1).min(edits.len()));
    }
    out
}

fn hunk(out: &mut String, edits: &[Edit], first: usize, end: usize) {
    let count = |edits: &[Edit]| {
        edits.iter().fold((0, 0), |(old, new), edit| match edit {
            Edit::Same(_) => (old + 1, new + 1),
            Edit::Removed(_) => (old + 1, new),
            Edit::Added(_) => (old, new + 1),
        })
    };
    let (old_start, new_start) = count(&edits[..first]);
    let (old_lines, new_lines) = count(&edits[first..end]);
    out.push_str(&format!("@@ -{},{old_lines} +{},{new_lines} @@\n", old_start + 1, new_start + 1));
    for edit in &edits[first..end] {
        let (mark, line) = match edit {
            Edit::Same(line) => (' ', line),
            Edit::Removed(line) => ('-', line),
            Edit::Added(line) => ('+', line),
        };
        out.push(mark);
        out.push_str(line);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::diff;

    #[test]
    fn shows_the_lines_that_differ_with_their_neighbours() {
        let old = json!({ "a": 1, "b": 2, "c": 3, "d": 4, "e": 5 });
        let mut new = old.clone();
        new["e"] = json!(["z"]);
        assert_eq!(
            diff(&old, &new),
            "@@ -3,5 +3,7 @@\n  \"b\": 2,\n  \"c\": 3,\n  \"d\": 4,\n- \"e\": 5\n+ \"e\": [\n+  \"z\"\n+ ]\n }\n"
        );
        assert_eq!(diff(&old, &old), "");
    }
}
