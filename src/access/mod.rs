//! (being written)
#[derive(Debug, Clone)]
pub struct Identity {
    pub user_name: Option<std::sync::Arc<str>>,
}
