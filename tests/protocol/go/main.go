// The stock Go clients, arrow-go's flightsql.Client and its database/sql driver, run step by step.
//
// Arguments: address, PEM file of the trusted authority ("" for no TLS), user, password; statements to run in place
// of the steps, if any. Prints one JSON object: what each step or statement saw, or its error as
// {"error": code, "message": text}.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

type outcome map[string]any

func told(err error) any {
	return outcome{"error": status.Code(err).String(), "message": status.Convert(err).Message()}
}

type session struct {
	ctx    context.Context
	client *flightsql.Client
}

// rows fetches all batches of an info: how many rows, and the first row as text.
func (s session) rows(info *flight.FlightInfo, err error) any {
	if err != nil {
		return told(err)
	}
	count, first := int64(0), ""
	for _, endpoint := range info.Endpoint {
		reader, err := s.client.DoGet(s.ctx, endpoint.Ticket)
		if err != nil {
			return told(err)
		}
		for reader.Next() {
			batch := reader.RecordBatch()
			if count == 0 && batch.NumRows() > 0 {
				for _, column := range batch.Columns() {
					first += column.ValueStr(0) + "|"
				}
			}
			count += batch.NumRows()
		}
		err = reader.Err()
		reader.Release()
		if err != nil {
			return told(err)
		}
	}
	if len(first) > 200 {
		first = first[:200]
	}
	return outcome{"rows": count, "first": first}
}

// texts fetches all rows of an info as texts.
func (s session) texts(info *flight.FlightInfo, err error) any {
	if err != nil {
		return told(err)
	}
	found := [][]string{}
	for _, endpoint := range info.Endpoint {
		reader, err := s.client.DoGet(s.ctx, endpoint.Ticket)
		if err != nil {
			return told(err)
		}
		for reader.Next() {
			batch := reader.RecordBatch()
			for row := 0; row < int(batch.NumRows()); row++ {
				texts := []string{}
				for _, column := range batch.Columns() {
					texts = append(texts, column.ValueStr(row))
				}
				found = append(found, texts)
			}
		}
		err = reader.Err()
		reader.Release()
		if err != nil {
			return told(err)
		}
	}
	return found
}

func (s session) tables() any {
	info, err := s.client.GetTables(s.ctx, &flightsql.GetTablesOpts{IncludeSchema: true})
	if err != nil {
		return told(err)
	}
	reader, err := s.client.DoGet(s.ctx, info.Endpoint[0].Ticket)
	if err != nil {
		return told(err)
	}
	defer reader.Release()
	found := outcome{}
	for reader.Next() {
		batch := reader.RecordBatch()
		names := batch.Column(2).(*array.String)
		schemas := batch.Column(4).(*array.Binary)
		for row := 0; row < names.Len(); row++ {
			schema, err := flight.DeserializeSchema(schemas.Value(row), memory.DefaultAllocator)
			if err != nil {
				return told(err)
			}
			found[names.Value(row)] = schema.NumFields()
		}
	}
	return found
}

func (s session) prepared(query string, value int64) any {
	statement, err := s.client.Prepare(s.ctx, query)
	if err != nil {
		return told(err)
	}
	defer statement.Close(s.ctx)
	builder := array.NewInt64Builder(memory.DefaultAllocator)
	builder.Append(value)
	column := builder.NewInt64Array()
	schema := arrow.NewSchema([]arrow.Field{{Name: "1", Type: arrow.PrimitiveTypes.Int64}}, nil)
	statement.SetParameters(array.NewRecordBatch(schema, []arrow.Array{column}, 1))
	return s.rows(statement.Execute(s.ctx))
}

func (s session) cancelled() any {
	info, err := s.client.Execute(s.ctx, "SELECT 1")
	if err != nil {
		return told(err)
	}
	result, err := s.client.CancelFlightInfo(s.ctx, &flight.CancelFlightInfoRequest{Info: info})
	if err != nil {
		return told(err)
	}
	return outcome{"status": result.Status.String(), "then": s.rows(info, nil)}
}

func (s session) options() any {
	set, err := flight.NewSessionOptionValues(map[string]any{"time_zone": "Europe/Zurich"})
	if err != nil {
		return told(err)
	}
	answer, err := s.client.SetSessionOptions(s.ctx, &flight.SetSessionOptionsRequest{SessionOptions: set})
	if err != nil {
		return told(err)
	}
	held, err := s.client.GetSessionOptions(s.ctx, &flight.GetSessionOptionsRequest{})
	if err != nil {
		return told(err)
	}
	return outcome{"failed": len(answer.Errors), "time_zone": held.SessionOptions["time_zone"].GetStringValue()}
}

func (s session) closed() any {
	result, err := s.client.CloseSession(s.ctx, &flight.CloseSessionRequest{})
	if err != nil {
		return told(err)
	}
	return outcome{"status": result.Status.String(), "then": s.rows(s.client.Execute(s.ctx, "SELECT 1"))}
}

func (s session) update(query string) any {
	count, err := s.client.ExecuteUpdate(s.ctx, query)
	if err != nil {
		return told(err)
	}
	return outcome{"count": count}
}

func database(config *driver.DriverConfig) any {
	db, err := sql.Open("flightsql", config.DSN())
	if err != nil {
		return told(err)
	}
	defer db.Close()
	var double int64
	if err := db.QueryRow("SELECT ?::BIGINT * 2", int64(21)).Scan(&double); err != nil {
		return told(err)
	}
	var text string
	if err := db.QueryRow("SELECT 'é'").Scan(&text); err != nil {
		return told(err)
	}
	if err := db.Close(); err != nil {
		return told(err)
	}
	return outcome{"double": double, "text": text}
}

func main() {
	address, authority, user, password := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	transport := insecure.NewCredentials()
	config := &driver.DriverConfig{Address: address, Username: user, Password: password}
	if authority != "" {
		pem, err := os.ReadFile(authority)
		if err != nil {
			panic(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		trusted := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		transport = credentials.NewTLS(trusted)
		if err := driver.RegisterTLSConfig("test", trusted); err != nil {
			panic(err)
		}
		config.TLSEnabled, config.TLSConfigName, config.TLSConfig = true, "test", trusted
	}
	client, err := flightsql.NewClient(address, nil, nil, grpc.WithTransportCredentials(transport))
	if err != nil {
		panic(err)
	}
	seen := outcome{}
	ctx := context.Background()
	if user != "" {
		if ctx, err = client.Client.AuthenticateBasicToken(ctx, user, password); err != nil {
			seen["login"] = told(err)
			ctx = context.Background()
		}
	}
	s := session{ctx, client}
	if statements := os.Args[5:]; len(statements) > 0 {
		for _, statement := range statements {
			seen[statement] = s.texts(client.Execute(ctx, statement))
		}
		seen["tables"] = s.tables()
		print(seen)
		return
	}
	seen["query"] = s.rows(client.Execute(ctx, "SELECT range AS n, 'é' AS t FROM range(100000)"))
	seen["wide"] = s.rows(client.Execute(ctx, "SELECT repeat('x', 6000) AS w FROM range(4096)"))
	seen["bad"] = s.rows(client.Execute(ctx, "SELECT nothing"))
	seen["catalogs"] = s.rows(client.GetCatalogs(ctx))
	seen["table_types"] = s.rows(client.GetTableTypes(ctx))
	seen["sql_info"] = s.rows(client.GetSqlInfo(ctx, []flightsql.SqlInfo{flightsql.SqlInfoFlightSqlServerName}))
	seen["xdbc"] = s.rows(client.GetXdbcTypeInfo(ctx, nil))
	seen["keys"] = s.rows(client.GetPrimaryKeys(ctx, flightsql.TableRef{Table: "flows"}))
	seen["tables"] = s.tables()
	seen["prepared"] = s.prepared("SELECT ?::BIGINT * 2 AS d", 21)
	seen["update"] = s.update("SET application_name = 'go'")
	seen["cancelled"] = s.cancelled()
	seen["options"] = s.options()
	seen["database/sql"] = database(config)
	seen["closed"] = s.closed()
	if err := client.Close(); err != nil {
		seen["close"] = told(err)
	}
	print(seen)
}

func print(seen outcome) {
	text, err := json.Marshal(seen)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}
