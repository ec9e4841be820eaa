// The Go side: takes the file of a form from net/http's own parser, reads it to its end, and answers with its size.
//
// How many cores it uses is said as for any Go program, with the environment variable GOMAXPROCS.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// What a form may hold in memory, as net/http itself has it by default; what is larger goes into a temporary file.
const memoryBytes = 32 << 20

func upload(response http.ResponseWriter, request *http.Request) {
	if err := request.ParseMultipartForm(memoryBytes); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	defer request.MultipartForm.RemoveAll()
	file, _, err := request.FormFile("file")
	if err != nil {
		http.Error(response, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	defer file.Close()
	size, err := io.Copy(io.Discard, file)
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	// Without the line feed that an encoder appends: all servers give the same answer.
	answer, _ := json.Marshal(map[string]int64{"size": size})
	response.Header().Set("Content-Type", "application/json")
	response.Write(answer)
}

func serve(port int) error {
	// Temporary files have names in Go: they lie in a directory of our own, which goes with the server.
	scratch, err := os.MkdirTemp("", "form-uploads-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if err := os.Setenv("TMPDIR", scratch); err != nil {
		return err
	}

	handler := http.NewServeMux()
	handler.HandleFunc("/upload", upload)
	server := &http.Server{
		Addr:              net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Handler:           handler,
		ReadHeaderTimeout: time.Minute,
	}
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(stopped, func() { server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func main() {
	port := flag.Int("port", 8000, "port to listen on, on the loopback interface")
	flag.Parse()
	if err := serve(*port); err != nil {
		log.Fatal(err)
	}
}
