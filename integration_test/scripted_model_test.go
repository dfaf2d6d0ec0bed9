//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// scriptedModel plays a model on 127.0.0.1: each request of an agent's main
// loop takes the next step. What an agent asks besides, such as a title for
// the conversation, is told by its offering no tools, and takes none.
type scriptedModel struct {
	server *httptest.Server

	mu    sync.Mutex
	taken int
	steps []step
	heard []string // the bodies of the main loop's requests
}

// step is what the model says: a text, or the call of a tool.
type step struct {
	text  string
	tool  string
	args  map[string]any
	input string // of a tool that takes free text: that instead of args
}

// modelAPI is how a model is asked and answers: gemini, responses or chat.
type modelAPI func(*scriptedModel, http.ResponseWriter, *http.Request)

func newScriptedModel(t *testing.T, api modelAPI) *scriptedModel {
	m := &scriptedModel{}
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { api(m, w, r) }))
	t.Cleanup(func() {
		m.server.CloseClientConnections()
		m.server.Close()
	})
	return m
}

// play makes steps the next ones, and forgets what was heard.
func (m *scriptedModel) play(steps ...step) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps, m.heard = steps, nil
}

// was is all that the model was told since play.
func (m *scriptedModel) was() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.heard, "\n")
}

// left is how many steps are still to be taken.
func (m *scriptedModel) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps)
}

// next takes a step for a request of the main loop, and gives it a number.
func (m *scriptedModel) next(body []byte) (step, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard = append(m.heard, string(body))
	m.taken++
	if len(m.steps) == 0 {
		return step{text: "(the script is over)"}, m.taken
	}
	s := m.steps[0]
	m.steps = m.steps[1:]
	return s, m.taken
}

// object is a JSON object.
type object = map[string]any

// encoded is v as JSON: all that is passed here can be encoded.
func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// gemini answers as Google's generateContent and streamGenerateContent.
func (m *scriptedModel) gemini(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct {
		Tools []struct {
			FunctionDeclarations []json.RawMessage `json:"functionDeclarations"`
		} `json:"tools"`
	}
	_ = json.Unmarshal(body, &request)
	if strings.Contains(r.URL.Path, "countTokens") {
		fmt.Fprint(w, `{"totalTokens":10}`)
		return
	}
	s := step{text: `{"reasoning":"x","model_choice":"flash","complexity_score":10,"complexity_reasoning":"x","next_speaker":"user"}`}
	if len(request.Tools) > 0 && len(request.Tools[0].FunctionDeclarations) > 0 {
		s, _ = m.next(body)
	}
	part := object{"text": s.text}
	if s.tool != "" {
		part = object{"functionCall": object{"name": s.tool, "args": s.args}, "thoughtSignature": "c2ln"}
	}
	answer := encoded(object{
		"candidates":    []any{object{"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}, "modelVersion": "fake",
	})
	if strings.Contains(r.URL.Path, "stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\r\n\r\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, answer)
}

// toolRequest is what both of OpenAI's APIs ask with.
type toolRequest struct {
	Model  string            `json:"model"`
	Stream bool              `json:"stream"`
	Tools  []json.RawMessage `json:"tools"`
}

// openAI reads a request to an endpoint of OpenAI's and finds what to say.
// Anything else, such as a list of models, is not found.
func (m *scriptedModel) openAI(endpoint string, w http.ResponseWriter, r *http.Request) (request toolRequest, s step, n int, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, endpoint) || json.Unmarshal(body, &request) != nil {
		http.NotFound(w, r)
		return request, s, n, false
	}
	s = step{text: "a title"}
	if len(request.Tools) > 0 {
		s, n = m.next(body)
	}
	return request, s, n, true
}

// responses answers as OpenAI's Responses API, which streams named events.
func (m *scriptedModel) responses(w http.ResponseWriter, r *http.Request) {
	_, s, n, ok := m.openAI("/responses", w, r)
	if !ok {
		return
	}
	// An item comes twice: announced empty, and whole.
	var begun, item object
	call := fmt.Sprintf("call_%d", n)
	switch {
	case s.input != "":
		begun = object{"type": "custom_tool_call", "id": "item_" + call, "call_id": call, "name": s.tool, "input": ""}
		item = object{"type": "custom_tool_call", "id": "item_" + call, "call_id": call, "name": s.tool, "input": s.input}
	case s.tool != "":
		begun = object{"type": "function_call", "id": "item_" + call, "call_id": call, "name": s.tool, "arguments": ""}
		item = object{"type": "function_call", "id": "item_" + call, "call_id": call, "name": s.tool, "arguments": encoded(s.args)}
	default:
		begun = object{"type": "message", "id": "item_" + call, "role": "assistant", "content": []any{}}
		item = object{"type": "message", "id": "item_" + call, "role": "assistant",
			"content": []any{object{"type": "output_text", "text": s.text, "annotations": []any{}}}}
	}
	events := []object{
		{"type": "response.created", "response": object{"id": "response_" + call}},
		{"type": "response.output_item.added", "output_index": 0, "item": begun},
		{"type": "response.output_item.done", "output_index": 0, "item": item},
		{"type": "response.completed", "response": object{"id": "response_" + call, "output": []any{item},
			"usage": object{"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}},
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], encoded(e))
	}
}

// chat answers as OpenAI's chat completions, which stream pieces of a message.
func (m *scriptedModel) chat(w http.ResponseWriter, r *http.Request) {
	request, s, n, ok := m.openAI("/chat/completions", w, r)
	if !ok {
		return
	}
	message := object{"role": "assistant", "content": s.text}
	finish := "stop"
	if s.tool != "" {
		message = object{"role": "assistant", "tool_calls": []any{object{"index": 0, "id": fmt.Sprintf("call_%d", n), "type": "function",
			"function": object{"name": s.tool, "arguments": encoded(s.args)}}}}
		finish = "tool_calls"
	}
	answer := func(kind, part string, content object, finish any) string {
		return encoded(object{"id": fmt.Sprintf("answer_%d", n), "object": kind, "created": 1, "model": request.Model,
			"choices": []any{object{"index": 0, part: content, "finish_reason": finish}},
			"usage":   object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}})
	}
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answer("chat.completion", "message", message, finish))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", answer("chat.completion.chunk", "delta", message, nil))
	fmt.Fprintf(w, "data: %s\n\n", answer("chat.completion.chunk", "delta", object{}, finish))
	fmt.Fprint(w, "data: [DONE]\n\n")
}
