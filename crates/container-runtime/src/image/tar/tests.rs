use super::*;

#[test]
fn values_of_extended_headers_may_hold_line_ends() {
    let parsed = records(b"13 a=b\nc=d\ne\n8 k=v\nx\n").unwrap();
    assert_eq!(parsed, [(b"a".to_vec(), b"b\nc=d\ne".to_vec()), (b"k".to_vec(), b"v\nx".to_vec())]);
    assert!(records(b"99 a=b\n").is_err());
    assert!(records(b"0 a=b\n").is_err());
}

#[test]
fn numbers_of_all_kinds() {
    assert_eq!(number(b"0000644\0"), Some(0o644));
    assert_eq!(number(b"   644 \0"), Some(0o644));
    assert_eq!(number(&[0x80, 0, 0, 0, 0, 0x20, 0, 0]), Some(0x20_0000));
    assert_eq!(signed(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]), Some(-2));
    assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]), None);
    assert_eq!(number(b"zzz"), None);
    assert_eq!(time("12.5"), Some((12, 500_000_000)));
    assert_eq!(time("-1.25"), Some((-2, 750_000_000)));
}

#[test]
fn a_name_that_was_cut_at_a_slash_is_no_folder() {
    let name = format!("{}/data", "d".repeat(99));
    let mut builder = ::tar::Builder::new(Vec::new());
    builder.append_pax_extensions([("path", name.as_bytes())]).unwrap();
    let mut header = ::tar::Header::new_ustar();
    header.as_mut_bytes()[..100].copy_from_slice(&name.as_bytes()[..100]);
    header.set_size(7);
    header.set_cksum();
    builder.append(&header, &b"content"[..]).unwrap();
    let whole = builder.into_inner().unwrap();

    let mut archive = Archive::new(&whole[..]);
    let entry = archive.next().unwrap().unwrap();
    assert_eq!((entry.kind, entry.path.as_slice()), (Kind::File, name.as_bytes()));
    let mut content = Vec::new();
    archive.read_to_end(&mut content).unwrap();
    assert_eq!(content, b"content");
    assert!(archive.next().unwrap().is_none());
}

#[test]
fn broken_archives_are_errors() {
    let mut builder = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_size(600);
    builder.append_data(&mut header, "file", &[7; 600][..]).unwrap();
    let whole = builder.into_inner().unwrap();
    for cut in [100, 512, 700, 1100] {
        let mut archive = Archive::new(&whole[..cut]);
        let mut content = Vec::new();
        let result = archive.next().and_then(|_| archive.read_to_end(&mut content)).and_then(|_| archive.next());
        assert!(result.is_err(), "{cut}");
    }
    let mut wrong = whole.clone();
    wrong[0] ^= 1;
    assert!(Archive::new(&wrong[..]).next().is_err());
    let mut archive = Archive::new(&whole[..]);
    assert_eq!(archive.next().unwrap().unwrap().path, b"file");
    assert!(archive.next().unwrap().is_none());
}
