pub mod hash;
pub fn build(_: &std::path::Path) -> crate::failure::Result<Vec<serde_json::Value>> { Ok(Vec::new()) }
