use super::*;

fn check(text: &str, expected: &str) {
    let shown = Quantity::parse(text).map_or_else(|error| format!("error: {error}"), |quantity| quantity.canonical());
    assert_eq!(shown, expected, "for {text}");
}

#[test]
fn canonical_text() {
    for (text, expected) in [
        ("0", "0"),
        ("00", "0"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.1Ki", "102400m"),
        ("1023Ki", "1023Ki"),
        ("1000Mi", "1000Mi"),
        ("512", "512"),
        ("2048", "2048"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1e2", "100"),
        ("12e-1", "1200e-3"),
        ("100000", "100k"),
        ("-1", "-1"),
        ("+1", "1"),
        ("0.0000000001", "1n"),
        ("1.0000000001", "1000000001n"),
        ("9999999999999Gi", "9223372036854775807"),
        ("4Ei", "4Ei"),
        ("1E", "1E"),
        ("0.000000000931322574615478515625Gi", "1"),
    ] {
        check(text, expected);
    }
}

#[test]
fn what_looks_canonical_is_written_back_as_it_is() {
    for (text, expected) in [
        ("0", "0"),
        ("+1", "+1"),
        ("1.", "1."),
        ("1E3", "1E3"),
        ("1e+3", "1e+3"),
        ("00012", "00012"),
        ("00012Ki", "00012Ki"),
        ("4.2e-2", "4.2e-2"),
        ("123456789.123456789", "123456789.123456789"),
        ("12e-1", "1200e-3"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5", "1500m"),
        ("1.500", "1.500"),
        ("1.501", "1.501"),
        ("1024Mi", "1Gi"),
        ("8Mi", "8Mi"),
        ("1.5Gi", "1536Mi"),
        ("100000", "100k"),
        (" 1 ", "1"),
        ("1e19", "10e18"),
    ] {
        assert_eq!(Quantity::written(&text.into()).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn refused_text() {
    let format = format!("error: {}", ParseError::Format);
    for text in ["", "abc", "1 Gi", "1.2.3", "0x10", "1Gi5x"] {
        check(text, &format);
    }
    for text in ["m", ".", "-"] {
        check(text, "0");
    }
    for text in ["1mm", "1Kii", "1e", "1K", "--1"] {
        check(text, "error: unable to parse quantity's suffix");
    }
}

#[test]
fn arithmetic_and_rounding() {
    let parse = |text| Quantity::parse(text).expect("a good quantity");
    assert_eq!((parse("1Gi") - parse("512Mi")).canonical(), "512Mi");
    assert_eq!((parse("0") + parse("1Gi")).canonical(), "1Gi");
    assert!(parse("1000m") == parse("1") && parse("1Gi") > parse("1G"));
    assert_eq!((parse("1500m").value(), parse("1500u").milli_value(), parse("-1500m").value()), (2, 2, -2));
    assert_eq!(parse("1u").round_up_milli().canonical(), "1m");
    assert_eq!(parse("1e300").value(), i64::MAX);
}

/// What upstream's own table says of signs, sizes and the unit that is shown.
#[test]
fn amounts_are_shown_in_their_own_unit() {
    for (text, expected) in [
        ("-1500m", "-1500m"),
        ("1500m", "1500m"),
        ("1.1", "1100m"),
        ("1M", "1M"),
        ("1000k", "1M"),
        ("1500k", "1500k"),
        ("1Mi", "1Mi"),
        ("1536Ki", "1536Ki"),
        ("0.5Mi", "512Ki"),
        ("1n", "1n"),
        ("1e-9", "1e-9"),
        ("1e6", "1e6"),
        ("1.5e3", "1500"),
        ("0Mi", "0"),
        ("0e3", "0"),
        ("-0", "0"),
    ] {
        check(text, expected);
    }
}

#[test]
fn amounts_are_compared_by_what_they_are_worth() {
    let parse = |text| Quantity::parse(text).expect("a good quantity");
    for (left, right, expected) in [
        ("1", "1000m", Ordering::Equal),
        ("1Ki", "1k", Ordering::Greater),
        ("-1", "0", Ordering::Less),
        ("1e3", "1k", Ordering::Equal),
        ("999m", "1", Ordering::Less),
        ("1n", "0", Ordering::Greater),
    ] {
        assert_eq!(parse(left).cmp(&parse(right)), expected, "{left} {right}");
        assert_eq!(parse(right).cmp(&parse(left)), expected.reverse(), "{right} {left}");
    }
    assert!(parse("0").is_zero() && !parse("1n").is_zero());
    assert_eq!((parse("-1m").sign(), parse("0").sign(), parse("5Gi").sign()), (-1, 0, 1));
    assert!(parse("2").is_whole() && parse("2000m").is_whole() && !parse("2001m").is_whole());
    assert_eq!(Quantity::from_milli(1500, Format::DecimalSi).canonical(), "1500m");
    assert_eq!(Quantity::from_int(1024, Format::BinarySi).canonical(), "1Ki");
    assert_eq!(Quantity::from_value(&serde_json::json!(3)).map(|amount| amount.canonical()), Ok("3".into()));
    assert!(Quantity::from_value(&serde_json::json!(true)).is_err());
}
