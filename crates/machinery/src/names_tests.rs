//! The rules of names, with what a bad one is answered.

use super::*;

/// The number of problems each text has with a rule.
fn check(rule: fn(&str) -> Vec<String>, cases: &[(&str, usize)]) {
    for (text, expected) in cases {
        assert_eq!(rule(text).len(), *expected, "for {text:?}: {:?}", rule(text));
    }
}

#[test]
fn shapes() {
    let long = "a".repeat(254);
    check(dns_subdomain, &[("a.b-c.d0", 0), ("", 1), ("a..b", 1), ("A", 1), ("a-", 1), (&long, 1)]);
    check(dns_label, &[("a-b", 0), ("0a", 0), ("a.b", 1), ("-", 1)]);
    check(dns1035_label, &[("a-b", 0), ("0a", 1)]);
    check(wildcard_dns_subdomain, &[("*.a.b", 0), ("a.b", 1), ("*", 1)]);
    check(path_segment_name, &[("system:x y", 0), ("..", 1), ("a/b%", 2)]);
    check(qualified_name, &[("a", 0), ("e.com/A_b.c", 0), ("/a", 1), ("A/b", 1), ("a/b/c", 1), ("a/", 2), ("a b", 1)]);
    check(label_value, &[("", 0), ("a_b", 0), ("a b", 1), (&"a".repeat(64), 1), ("-", 1)]);
    check(config_map_key, &[("a.b", 0), (".a", 0), ("..a", 1), ("a/b", 1), ("", 1), (".", 1)]);
    check(env_var_name, &[("A.b-c", 0), ("1a", 1), ("a=b", 1)]);
    check(relaxed_env_var_name, &[("1 a", 0), ("a=b", 1), ("é", 1)]);
    check(
        port_name,
        &[("http-1", 0), ("80", 1), ("a--b", 1), ("-a", 1), ("Http", 1), ("abcdefghijklmnop", 1), ("", 2)],
    );
    check(http_header_name, &[("X-A", 0), ("X A", 1), ("", 1)]);
    check(percent, &[("10%", 0), ("10", 1), ("%", 1)]);
    check(c_identifier, &[("_a1", 0), ("1a", 1)]);
    check(ip, &[("10.0.0.1", 0), ("::1", 0), ("010.0.0.1", 1), ("::ffff:1.2.3.4", 1), ("x", 1), ("1.2.3", 1)]);
    check(
        cidr,
        &[("10.0.0.0/8", 0), ("::/0", 0), ("10.0.0.1/8", 1), ("10.0.0.0/33", 1), ("10.0.0.0", 1), ("10.0.0.0/08", 1)],
    );
}

#[test]
fn words() {
    assert_eq!(
        label_value("a b")[0],
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
    );
    assert_eq!(mask_trailing_dash("abc-"), "aba");
    assert_eq!(mask_trailing_dash("a-"), "a");
    assert_eq!(mask_trailing_dash("abc"), "abc");
}

/// What a bad text is answered with, letter by letter.
#[test]
fn sentences() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let qualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    type Rule = fn(&str) -> Vec<String>;
    let long = "a".repeat(64);
    let cases: [(Rule, &str, &[&str]); 17] = [
        (dns_label, "A", &[label]),
        (dns_label, &long, &["must be no more than 63 characters"]),
        (
            qualified_name,
            "a/b/c",
            &[
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
             'example.com/MyName')",
            ],
        ),
        (qualified_name, "", &["name part must be non-empty", qualified]),
        (qualified_name, "/a", &["prefix part must be non-empty"]),
        (qualified_name, "a b", &[qualified]),
        (path_segment_name, ".", &["may not be '.'"]),
        (path_segment_name, "a/b", &["may not contain '/'"]),
        (path_segment_name, "50%", &["may not contain '%'"]),
        (port_name, "80", &["must contain at least one letter (a-z)"]),
        (port_name, "a--b", &["must not contain consecutive hyphens"]),
        (port_name, "-a", &["must not begin or end with a hyphen"]),
        (port_name, "abcdefghijklmnop", &["must be no more than 15 characters"]),
        (ip, "x", &["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
        (ip, "010.0.0.1", &["must not have leading 0s"]),
        (ip, "::ffff:1.2.3.4", &["must not be an IPv4-mapped IPv6 address"]),
        (cidr, "x", &["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
    ];
    for (rule, text, expected) in cases {
        assert_eq!(rule(text), expected, "{text:?}");
    }
}

/// A network has one thing wrong with it at a time, as upstream's checks end at the first.
#[test]
fn networks() {
    for (text, expected) in [
        ("10.0.0.0/8", None),
        ("2001:db8::/32", None),
        ("010.0.0.1/08", Some("must not have leading 0s in IP or prefix length")),
        ("10.0.0.0/08", Some("must not have leading 0s in IP or prefix length")),
        ("::ffff:10.0.0.1/104", Some("must not have an IPv4-mapped IPv6 address")),
        ("10.0.0.1/8", Some("must not have bits set beyond the prefix length")),
        ("2001:db8::1/32", Some("must not have bits set beyond the prefix length")),
        ("0.0.0.0/0", None),
        ("10.0.0.1/32", None),
    ] {
        assert_eq!(cidr(text).first().map(String::as_str), expected, "{text}");
        assert!(cidr(text).len() < 2, "{text}");
    }
}
