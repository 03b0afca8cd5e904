//! `/openapi/v2` and `/openapi/v3`.

use std::sync::Arc;

use http::HeaderMap;

use crate::app::App;
use crate::query::Query;
use crate::respond::Reply;

pub fn answer(_app: &Arc<App>, _path: &str, _query: &Query, _headers: &HeaderMap) -> Option<Reply> {
    None
}
