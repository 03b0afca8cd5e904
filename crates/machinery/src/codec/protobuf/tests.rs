#[test] fn nothing(){}
