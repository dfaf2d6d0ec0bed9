package protocol

// ACP methods and notifications that oinod serves, sends or understands.
const (
	Initialize        = "initialize"
	SessionNew        = "session/new"
	SessionLoad       = "session/load"
	SessionResume     = "session/resume"
	SessionList       = "session/list"
	SessionClose      = "session/close"
	SessionDelete     = "session/delete"
	SessionFork       = "session/fork" // unstable in ACP
	SessionPrompt     = "session/prompt"
	SessionCancel     = "session/cancel"             // notification
	CancelRequest     = "$/cancel_request"           // notification, either way
	SessionUpdate     = "session/update"             // notification to the client
	RequestPermission = "session/request_permission" // request to the client
	WriteTextFile     = "fs/write_text_file"         // request to the client
	SessionRewind     = "_session/rewind"            // of some agents; in ACP there is none
	SetMode           = "session/set_mode"
	SetModel          = "session/set_model" // unstable in ACP
	SetConfigOption   = "session/set_config_option"
)

// Methods of oinod's own.
const (
	Append      = "_oino/append"
	Entries     = "_oino/entries"
	Record      = "_oino/record"
	Write       = "_oino/write"
	Edit        = "_oino/edit"
	TurnEnd     = "_oino/turn_end"
	Checkpoints = "_oino/checkpoints"
	Diff        = "_oino/diff"
	Rewind      = "_oino/rewind"
	Redo        = "_oino/redo"
	Fork        = "_oino/fork"
	Label       = "_oino/label"
	Title       = "_oino/title"
	StatePut    = "_oino/state/put"
	StateGet    = "_oino/state/get"
	Stats       = "_oino/stats"
)

// What oinod asks and tells a client that offers to listen.
const (
	BeforeFork = "_oino/session_before_fork" // request
	Forked     = "_oino/session_fork"        // notification
	Event      = "_oino/event"               // notification
)

// Version is the ACP version that oinod speaks.
const Version = 1

// ExtensionVersion is the version of the "_oino/" methods.
const ExtensionVersion = 1
