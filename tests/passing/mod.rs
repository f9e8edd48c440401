//! The calls of a storage that a test passes on unchanged. The types are those that the file with the storage imports.

/// Methods of `Storage` that call the storage in a field: `pass_on!(inside: read, claim)`.
macro_rules! pass_on {
    ($field:ident: $($method:ident),+ $(,)?) => {
        $($crate::passing::pass_on!(@ $field $method);)+
    };
    (@ $field:ident append) => { $crate::passing::pass_on!(@ $field append(append: Append) -> Sequence); };
    (@ $field:ident read) => {
        $crate::passing::pass_on!(@ $field read(stream: &Key, from: Sequence, limit: usize) -> Vec<Record>);
    };
    (@ $field:ident streams) => {
        $crate::passing::pass_on!(@ $field streams(prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> Vec<Key>);
    };
    (@ $field:ident purge) => { $crate::passing::pass_on!(@ $field purge(stream: &Key, up_to: Sequence) -> ()); };
    (@ $field:ident get) => { $crate::passing::pass_on!(@ $field get(key: &Key) -> Option<Entry>); };
    (@ $field:ident put_if_revision) => { $crate::passing::pass_on!(@ $field put_if_revision(put: Put) -> Revision); };
    (@ $field:ident delete_if_revision) => {
        $crate::passing::pass_on!(@ $field delete_if_revision(delete: callboard::storage::Delete) -> ());
    };
    (@ $field:ident scan) => {
        $crate::passing::pass_on!(
            @ $field scan(prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> Vec<(Key, Entry)>
        );
    };
    (@ $field:ident watch) => {
        fn watch(&self, prefix: &KeyPrefix) -> Watch {
            self.$field.watch(prefix)
        }
    };
    (@ $field:ident sessions) => {
        $crate::passing::pass_on!($field: begin_session, renew_session, end_session, list_sessions, forget_session);
    };
    (@ $field:ident begin_session) => {
        $crate::passing::pass_on!(
            @ $field begin_session(new: callboard::storage::NewSession) -> callboard::storage::SessionId
        );
    };
    (@ $field:ident renew_session) => {
        $crate::passing::pass_on!(
            @ $field renew_session(id: callboard::storage::SessionId, about: std::sync::Arc<[u8]>) -> ()
        );
    };
    (@ $field:ident end_session) => {
        $crate::passing::pass_on!(
            @ $field end_session(id: callboard::storage::SessionId, only_if_expired: bool) -> ()
        );
    };
    (@ $field:ident list_sessions) => {
        fn sessions(&self) -> StorageFuture<Vec<callboard::storage::SessionInfo>> {
            self.$field.sessions()
        }
    };
    (@ $field:ident forget_session) => {
        $crate::passing::pass_on!(@ $field forget_session(id: callboard::storage::SessionId) -> ());
    };
    (@ $field:ident $method:ident($($name:ident: $kind:ty),+) -> $answer:ty) => {
        fn $method(&self, $($name: $kind),+) -> StorageFuture<$answer> {
            self.$field.$method($($name),+)
        }
    };
}

pub(crate) use pass_on;
