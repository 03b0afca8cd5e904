use super::*;

#[test]
fn a_bookmark_says_that_the_first_objects_were_sent() {
    let kind = api::KINDS.iter().find(|kind| kind.kind == "Secret").expect("a kind");
    let marked = |object: &Value| object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true";
    for form in [Form::Object, Form::Metadata] {
        let object = bookmark::object(kind, form, Revision(7), true);
        assert!(marked(&object) && object["metadata"]["resourceVersion"] == "7", "{object}");
        assert!(!marked(&bookmark::object(kind, form, Revision(7), false)));
    }
    let table = bookmark::object(kind, Form::Table, Revision(7), true);
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    let row = &table["rows"][0]["object"];
    assert!(marked(row) && row["metadata"]["resourceVersion"] == "7", "{table}");
}
